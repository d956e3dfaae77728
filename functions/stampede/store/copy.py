"""Copies objects from one store to another, and believes nothing until it was checked.

What is read is held against the etag and, where the name is a digest of the content, against the
name; what was written against the etag that the target gives it. An object that is at the target
already is not read at all, so whatever was cut short is simply begun again.
"""

import ctypes
import itertools
import re
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from hashlib import md5, sha256
from typing import NamedTuple

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.store.objects import ObjectInfo, Objects

WHOLE = 32 << 20
"""An object of no more bytes is one GET and one PUT: to a far site each request is a round trip."""
PIECE = 8 << 20
"""Bytes of a larger one asked for, and sent, at once; S3 takes parts from 5 MiB on."""
AHEAD = 2
"""Pieces fetched beside the one that is being sent."""
ROOM = 128 << 20
"""Bytes that copies under way hold, where nothing else is said."""

# Names that are the digest of the bytes; that of a merged run is one of its inputs' names.
_NAMED = re.compile(
    r"(?:(?:packs|thumbnails|alerts|deadletters)/.*|tables/[^/]+/0000-)([0-9a-f]{32})\.parquet"
)
_MMAP_THRESHOLD = -3  # glibc's malloc.h
_MD5 = re.compile(r"[0-9a-f]{32}")


class Copied(NamedTuple):
    """Bytes of an object, and whether they had to be copied."""

    bytes: int
    moved: bool


class Copier:
    """Copies from `source` to `target`. Safe to share between threads.

    Parameters
    ----------
    most_bytes
        Bytes that all copies under way hold at most; a copy waits for room only when its two
        sites have said what they have. Many copies and little room do for a site that is far:
        most of a copy's time it waits for an answer and holds nothing.
    """

    def __init__(self, source: Objects, target: Objects, most_bytes: int = ROOM) -> None:
        self.source, self.target = source, target
        self._room = _Room(most_bytes)
        _give_back()
        self._fetchers = ThreadPoolExecutor(
            AHEAD * max(1, most_bytes // ((AHEAD + 1) * PIECE)), "fetch"
        )

    def copy(self, key: str) -> Copied:
        """Have an object at the target; when this returns it was seen there, whole.

        Raises
        ------
        NotFound
            The source has no such object, or has it no more.
        Damaged
            What the source gives is not what it was given.
        StoreDown
            One of the two does not answer, or the copy is not what was sent.
        """
        info = self.source.head(key)
        if same(info, find(self.target, key)):
            return Copied(info.size, False)
        sums = _Sums(info)
        if info.size <= WHOLE:
            with self._room.of(info.size):
                self._whole(key, sums)
        else:
            with self._room.of((AHEAD + 1) * PIECE):
                self.target.put_stream(key, sums.over(self._fetch(info)))
        stored = self.target.head(key)
        if stored.size != info.size or not (stored.etag in sums.etags or self._reads_as(sums)):
            raise StoreDown(f"the copy of {key} is not what was sent: {stored}")
        return Copied(info.size, True)

    def close(self) -> None:
        """Stop the threads."""
        self._fetchers.shutdown()

    def _whole(self, key: str, sums: "_Sums") -> None:
        data = self.source.get(key)
        sums.add(data)
        sums.check()
        self.target.put(key, data)

    def _fetch(self, info: ObjectInfo) -> Iterator[bytes]:
        """The pieces of an object in order, some fetched ahead."""

        def piece(start: int) -> bytes:
            return self.source.get(info.key, start, min(PIECE, info.size - start))

        starts = iter(range(0, info.size, PIECE))
        coming: deque[Future[bytes]] = deque(
            self._fetchers.submit(piece, start) for start in itertools.islice(starts, AHEAD)
        )
        try:
            while coming:
                data = coming.popleft().result()
                coming.extend(
                    self._fetchers.submit(piece, start) for start in itertools.islice(starts, 1)
                )
                yield data
        finally:
            for future in coming:
                future.cancel()

    def _reads_as(self, sums: "_Sums") -> bool:
        """Whether the copy reads as what was sent: asked where an etag is no digest."""
        again = _Sums(sums.info)
        for start in range(0, sums.info.size, PIECE):
            again.add(self.target.get(sums.info.key, start, PIECE))
        return again.etags == sums.etags


def _give_back() -> None:
    """Have glibc give large blocks back to the kernel when they are freed, for ever after.

    By itself it would, once it has seen some, keep tens of MB of them for each thread.
    """
    with suppress(AttributeError):  # another libc
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 20)


def find(objects: Objects, key: str) -> ObjectInfo | None:
    """An object's size and etag, None where there is none. Raises `StoreDown`."""
    try:
        return objects.head(key)
    except NotFound:
        return None


def same(one: ObjectInfo, other: ObjectInfo | None) -> bool:
    """Whether two stores have the same under one name.

    A name has one content here, and a PUT is whole or nothing, so the size would do; two etags
    that are both a digest of the content tell damage.
    """
    return (
        other is not None
        and one.size == other.size
        and (
            one.etag == other.etag or not (_MD5.fullmatch(one.etag) and _MD5.fullmatch(other.etag))
        )
    )


class _Room:
    """Bytes that may be held at once; who asks for more than all of them gets all."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._turn, self._change = threading.Lock(), threading.Condition()

    @contextmanager
    def of(self, size: int) -> Iterator[None]:
        """Wait for room for so many bytes, and have it meanwhile."""
        size = min(size, self._most)
        with self._turn, self._change:  # one waits at a time: else small ones overtake a large one
            self._change.wait_for(lambda: self._left >= size)
            self._left -= size
        try:
            yield
        finally:
            with self._change:
                self._left += size
                self._change.notify_all()


class _Sums:
    """Digests of an object that goes by in pieces."""

    def __init__(self, info: ObjectInfo) -> None:
        self.info = info
        self._size = 0
        self._md5 = md5(usedforsecurity=False)
        self._parts: list[bytes] = []
        named = _NAMED.fullmatch(info.key)
        self._name = named and named[1]
        self._sha256 = sha256()

    def add(self, piece: bytes) -> None:
        """Take the next piece."""
        self._size += len(piece)
        self._md5.update(piece)
        if self.info.size > WHOLE:
            self._parts.append(md5(piece, usedforsecurity=False).digest())
        if self._name:
            self._sha256.update(piece)

    def over(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Pass the pieces on; raises `Damaged` at their end if they are not the object.

        So whoever stores them never comes to an end, and stores nothing.
        """
        for piece in pieces:
            self.add(piece)
            yield piece
        self.check()

    def check(self) -> None:
        """Raise `Damaged` if what went by is not the object."""
        etag = self.info.etag
        if self._name:
            sound = self._name == self._sha256.hexdigest()[:32]
        else:
            sound = not _MD5.fullmatch(etag) or etag == self._md5.hexdigest()
        if not sound or self._size != self.info.size:
            raise Damaged(f"{self.info.key} does not read as it was stored: it is damaged")

    @property
    def etags(self) -> tuple[str, str]:
        """What S3 calls such an object: stored by one PUT, or in parts of `PIECE`."""
        whole = md5(b"".join(self._parts), usedforsecurity=False).hexdigest()
        return self._md5.hexdigest(), f"{whole}-{len(self._parts)}"
