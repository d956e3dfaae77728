"""The command line, `stampede COMMAND`: one module for each command.

A module imports what its command needs when the command runs, so that `stampede --help` loads
none of it, and a function that starts from zero loads only its own modules.
"""

__all__ = [
    "audit",
    "main",
    "options",
    "running",
    "start",
    "terminal",
]
