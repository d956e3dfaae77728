"""What a response may lack or how old it may be: told in headers, and never cached.

================================  ==========================================================
header                            meaning
================================  ==========================================================
``Stampede-Incomplete: REASON``   data that the response may need cannot be read or verified
``Stampede-View-Age: SECONDS``    the store cannot be listed; the response is from an older view
================================  ==========================================================

A JSON answer has the reasons too, as the list ``incomplete``; a page shows them. The headers of a
stream are sent before its rows are read, so its end decides (`stampede.read.api.streams`).

The lookups of a request run in threads that share its warnings (`ThreadRunner`).
"""

import json
from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from math import ceil
from typing import TypeVar

A = TypeVar("A")

Headers = list[tuple[bytes, bytes]]

INCOMPLETE, VIEW_AGE = "Stampede-Incomplete", "Stampede-View-Age"


class ResponseWarnings:
    """What the response to one request may lack, and how old it may be."""

    def __init__(self) -> None:
        self.announced: dict[str, None] = {}
        self._reasons: dict[str, None] = {}
        self._objects: dict[str, set[str]] = {}  # keys of what is damaged, by table
        self._packs: set[str] = set()
        self.view_age = 0.0

    @classmethod
    def begin(cls) -> "ResponseWarnings":
        """The warnings of a request that begins in this context."""
        warnings = cls()
        _warnings.set(warnings)
        return warnings

    @property
    def reasons(self) -> list[str]:
        """Why the response may lack something; empty if it lacks nothing."""
        found = [*self._reasons, *map(damaged_in, self._objects, self._objects.values())]
        if self._packs:
            found.append(f"{counted(len(self._packs), 'pack')} of images cannot be read")
        return found

    @property
    def lacking(self) -> bool:
        """Whether the response may lack something, or be old."""
        return bool(self._reasons or self._objects or self._packs or self.view_age)

    def add(self, other: "ResponseWarnings") -> None:
        """Add what other warnings say."""
        self.announced |= other.announced
        self._reasons |= other._reasons
        for table, keys in other._objects.items():
            self._objects.setdefault(table, set()).update(keys)
        self._packs |= other._packs
        self.view_age = max(self.view_age, other.view_age)

    def added_to(self, headers: Headers) -> Headers:
        """The headers of the response, with the warnings."""
        if not (self.announced or self.lacking):
            return [*headers]
        added = [(name, value) for name, value in headers if name != b"cache-control"]
        added.append((b"cache-control", b"no-store"))
        if why := [*self.announced, *self.reasons]:
            added.append((INCOMPLETE.encode(), ", ".join(why).encode()))
        if self.view_age:
            added.append((VIEW_AGE.encode(), b"%d" % ceil(self.view_age)))
        return added


_warnings: ContextVar[ResponseWarnings | None] = ContextVar("warnings", default=None)


def may_lack(reason: str) -> None:
    """Note that the response may lack something; `reason` is ASCII."""
    if warnings := _warnings.get():
        warnings._reasons[reason] = None


def lacks_objects(table: str, keys: Iterable[str]) -> None:
    """Note that the response may lack what these objects of a table hold, which cannot be read."""
    if warnings := _warnings.get():
        warnings._objects.setdefault(table, set()).update(keys)


def lacks_pack(key: str) -> None:
    """Note that the response lacks what a pack of images holds, which cannot be read."""
    if warnings := _warnings.get():
        warnings._packs.add(key)


def announce(reason: str) -> None:
    """Note in the headers alone that a stream may meet damage: only its end knows whether it did.

    `reason` is ASCII.
    """
    if warnings := _warnings.get():
        warnings.announced[reason] = None


def damaged_in(table: str, keys: Collection[str]) -> str:
    """The reason that these objects of a table are."""
    return f"{counted(len(keys), 'damaged object')} of the table {table}"


def counted(count: int, noun: str) -> str:
    """A number of things, such as ``1 pack`` or ``2 packs``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def from_view_of_age(seconds: float) -> None:
    """Note that the response comes from a listing of this age; the oldest counts."""
    if warnings := _warnings.get():
        warnings.view_age = max(warnings.view_age, seconds)


def incomplete() -> list[str]:
    """Why the response may lack something; empty if it lacks nothing."""
    warnings = _warnings.get()
    return warnings.reasons if warnings else []


def in_object(document: bytes) -> bytes:
    """A JSON object with the member ``incomplete`` if there is anything to tell."""
    if why := incomplete():
        return document[:-1] + b', "incomplete": %s}' % json.dumps(why).encode()
    return document


def call_with_warnings(read: Callable[[], A]) -> tuple[A, bool]:
    """What `read` returns, and whether it warned of anything."""
    before, own = _warnings.get(), ResponseWarnings()
    token = _warnings.set(own)
    try:
        result = read()
    finally:
        _warnings.reset(token)
        if before is not None:
            before.add(own)
    return result, own.lacking
