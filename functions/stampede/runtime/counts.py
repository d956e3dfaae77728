"""Counts in sentences: "1 alert", "2 alerts"."""

from collections.abc import Sized


def counted(count: int | Sized, noun: str) -> str:
    """A count, or that of the members, with its noun: ``counted(2, "entry")`` is "2 entries"."""
    number = count if isinstance(count, int) else len(count)
    return f"{number:,} {noun if number == 1 else _plural(noun)}"


def are(count: int | Sized) -> str:
    """The verb for a count: "is" for one."""
    number = count if isinstance(count, int) else len(count)
    return "is" if number == 1 else "are"


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch")) else f"{noun}s"
