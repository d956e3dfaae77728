"""The narrow protocol behind which an object store lies.

Every name written is new or has the same content as before, so there is no conditional write,
no rename and no update here. Twins: `s3.S3Objects`, `directory.DirectoryObjects`,
`memory.MemoryObjects`; one set of contract tests holds all three.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple, Protocol

from stampede.errors import NotFound, StoreDown

__all__ = ["NotFound", "ObjectInfo", "Objects", "StoreDown"]


class ObjectInfo(NamedTuple):
    """One object as a listing shows it."""

    key: str
    size: int
    etag: str
    modified: datetime


class Objects(Protocol):
    """Whole objects in, ranges out, keys in order. Safe to share between threads.

    Every method raises `StoreDown` where the store does not answer as it should.
    """

    def put(self, key: str, data: bytes | memoryview, sha256: str | None = None) -> None:
        """Store `data` under `key`, durable when this returns; all of it is seen, or nothing.

        `sha256` is that of `data`, in hexadecimal, where it is known: S3 need not make it again.
        """

    def put_stream(self, key: str, pieces: Iterable[bytes]) -> None:
        """Store what `pieces` make together, holding one of them at a time; else as `put`.

        Each but the last has the same size, of at least 5 MiB, as S3 wants the parts of an
        upload. An error that `pieces` raises passes through, and nothing is stored.
        """

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes ``[start, start + length)`` of an object, to its end where `length` is None.

        Raises `NotFound` where there is no such object.
        """

    def head(self, key: str) -> ObjectInfo:
        """Size, etag and time of an object. Raises `NotFound`."""

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """Every object whose key starts with `prefix` and sorts after `after`, in key order."""

    def delete(self, key: str) -> None:
        """Remove an object; harmless where there is none."""

    def forget_uploads(self, before: datetime) -> int:
        """Remove what was begun before that time and never stored; how many.

        A process that is killed leaves such pieces: no listing shows them, but they take room.
        """
