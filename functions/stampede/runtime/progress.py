"""The type of the callables to which long operations report each step."""

from collections.abc import Callable

Progress = Callable[[str], None]
"""Takes a line of text at each step."""


def silent(line: str) -> None:
    """A `Progress` that shows nothing."""
