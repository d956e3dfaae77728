"""The command line, `stampede COMMAND`: a module for each command.

A module imports what its command needs when the command runs. So `stampede --help` loads none of
it, and a function that starts from zero loads only its own.
"""
