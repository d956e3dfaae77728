"""Routes of other servers, so that their own clients read Stampede: one module for each server.

docs/how-to/clients-of-others.md has the addresses, and what works. Their documents describe the
parameters and answers; each module has one table of their names for Stampede's columns.
"""

__all__ = [
    "routes",
]
