"""The narrow protocol of an object store.

A key is written once, or again with the same content, so the protocol needs no conditional write,
no rename and no update. Implemented by `S3Objects`, `DirectoryObjects` and `MemoryObjects`; one
set of contract tests runs on all three.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from stampede.errors import NotFound, StoreDown

A = TypeVar("A")

_PROBES = 3  # other objects that are asked for if some cannot be read


class ObjectInfo(NamedTuple):
    """One entry of a listing."""

    key: str
    size: int
    etag: str
    modified: datetime


class Folder(NamedTuple):
    """What is directly in a folder: folders, with a slash at the end, and objects; in order."""

    folders: list[str]
    objects: list[ObjectInfo]


class Objects(Protocol):
    """Whole objects in, ranges out, keys in order. Safe to share between threads.

    Every method raises `StoreDown` if the store does not answer as it should.
    """

    def put(self, key: str, data: bytes | memoryview, sha256: str | None = None) -> None:
        """Store `data` under `key`, durable when this returns. Readers see all of it or nothing.

        `sha256` is the digest of `data` in hexadecimal, if known: S3 need not compute it again.
        """

    def put_stream(self, key: str, pieces: Iterable[bytes]) -> None:
        """As `put`, for the concatenation of `pieces`, with one piece in memory at a time.

        All pieces except the last have the same size, at least 5 MiB: S3 requires that of the parts
        of an upload. An error that `pieces` raises is passed on, and nothing is stored.
        """

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes ``[start, start + length)`` of an object, or to its end if `length` is None.

        Raises `NotFound`.
        """

    def head(self, key: str) -> ObjectInfo:
        """Size, etag and time of an object. Raises `NotFound`."""

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """Every object whose key starts with `prefix` and sorts after `after`, in key order."""

    def list_folder(self, folder: str) -> Folder:
        """What is directly in a folder, whose name ends with a slash; ``""`` is the whole store.

        A folder exists as long as there is an object in it, at any depth. Its objects are not
        listed: S3 answers with a thousand folders per request, however much they hold.
        """

    def delete(self, key: str) -> None:
        """Delete an object; harmless if it does not exist."""

    def forget_uploads(self, before: datetime) -> int:
        """Delete uploads that began before that time and never ended; returns their number.

        A killed process leaves such uploads. No listing shows them, but they take space.
        """

    def now(self) -> datetime:
        """The time by the store's own clock, in UTC, to a second or better."""


def find(objects: Objects, key: str) -> ObjectInfo | None:
    """An object's size, etag and time; None if the store has none. Raises `StoreDown`."""
    try:
        return objects.head(key)
    except NotFound:
        return None


def after_folder(folder: str) -> str:
    """What sorts right after all keys in a folder."""
    return folder[:-1] + "0"  # the character after the slash


def read_twice(read: Callable[[], A], *failures: type[Exception]) -> A:
    """What `read` returns; once more after one of `failures`, as the network may be to blame."""
    try:
        return read()
    except failures:
        return read()


def gives_others(objects: Objects, *keys: str) -> bool:
    """Whether a store gives any of a few objects other than these. Raises `StoreDown`."""
    others = (info.key for info in objects.list("") if info.key not in keys)
    for other in islice(others, _PROBES):
        try:
            objects.get(other, 0, 1)
        except (NotFound, StoreDown):
            continue
        return True
    return False
