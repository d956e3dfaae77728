"""What a check finds."""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from stampede.addresses import shown
from stampede.config.settings import Settings


class Level(StrEnum):
    """How bad it is."""

    WARNING = "warning"
    """It works, but not for long, or not as well."""
    ERROR = "error"
    """Alerts are not taken, stored, served or copied, or are lost."""


class Finding(NamedTuple):
    """One fault in a sentence, and what repairs it: a command, or what to set."""

    level: Level
    fault: str
    repair: str


class NotExamined(Exception):
    """Raised by a check that cannot look, or not at all of it; the text says why."""


class Installation(NamedTuple):
    """What is examined.

    Attributes
    ----------
    settings
        How to reach everything.
    urls
        URLs of the functions by name.
    installed
        False before an installation, which makes missing buckets.
    logs
        The log of each process of `stampede up` by name.
    """

    settings: Settings
    urls: Mapping[str, str]
    installed: bool = True
    logs: Mapping[str, str] = MappingProxyType({})


Check = Callable[[Installation], Iterator[Finding]]
"""Yields what is wrong. Its docstring's first line says what is well if it yields nothing. It may
raise `NotExamined`."""


def error(fault: str, repair: str) -> Finding:
    """A finding of level ERROR."""
    return Finding(Level.ERROR, shown(fault), shown(repair))


def warning(fault: str, repair: str) -> Finding:
    """A finding of level WARNING."""
    return Finding(Level.WARNING, shown(fault), shown(repair))
