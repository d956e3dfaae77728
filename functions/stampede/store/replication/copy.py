"""Copies objects from one store to another, and checks every copy at both ends.

What is read is compared with the source's etag and, if the name is a digest of the content, with
the name. What was written is compared with the etag that the target reports. An object that is
already at the target is not read, so after an interruption simply copy everything again.
"""

import ctypes
import itertools
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import NamedTuple

from stampede.errors import Damaged, StoreDown
from stampede.store.integrity.digests import Digests, same
from stampede.store.integrity.verification import is_merged, sound, verify
from stampede.store.objects.object_store import ObjectInfo, Objects, find

WHOLE = 32 << 20
"""Objects up to this size are one GET and one PUT: to a far site each request is a round trip."""
PIECE = 8 << 20
"""Bytes of a larger object per GET and per part of its upload; S3 takes parts from 5 MiB on."""
AHEAD = 2
"""Pieces fetched while another is sent."""
MAX_BYTES = 128 << 20
"""Default for the bytes held by all copies under way."""

_MMAP_THRESHOLD = -3  # glibc's malloc.h


class Copied(NamedTuple):
    """Bytes of an object, and whether they had to be copied."""

    bytes: int
    moved: bool


class Copier:
    """Copies from `source` to `target`. Safe to share between threads.

    Parameters
    ----------
    most_bytes
        Bytes that all copies under way hold at most. A copy reserves its bytes after the two
        HEADs that show it is needed. Many copies and few bytes suit a far site: for most of its
        time a copy waits for a response and holds nothing.
    """

    def __init__(self, source: Objects, target: Objects, most_bytes: int = MAX_BYTES) -> None:
        self.source, self.target = source, target
        self._budget = _ByteBudget(most_bytes)
        _return_freed_memory()
        self._fetchers = ThreadPoolExecutor(
            AHEAD * max(1, most_bytes // ((AHEAD + 1) * PIECE)), "fetch"
        )

    def copy(self, key: str, replace: bool = False) -> Copied:
        """Copy an object unless the target has it. When this returns, the target has all of it.

        If the two sites differ, both are verified: only a copy that is damaged is overwritten, and
        only by one that reads as it was stored. With `replace` the caller has verified both.

        Raises
        ------
        NotFound
            The source has no such object, or no longer has it.
        Damaged
            The source returns other bytes than were stored, or the sites differ and it cannot be
            told which is right. The target is as it was.
        StoreDown
            A site does not answer, or the copy is not what was sent.
        """
        info, other = self.source.head(key), find(self.target, key)
        if not replace:
            if same(info, other):
                return Copied(info.size, False)
            if other is not None or is_merged(key):
                verify(self.source, info)
            if other is not None and sound(self.target, other):
                raise Damaged(f"{key} differs at the two sites, and both read as stored")
        in_parts = info.size > WHOLE
        digests = Digests(info, in_parts)
        if in_parts:
            with self._budget.reserve((AHEAD + 1) * PIECE):
                self.target.put_stream(key, digests.checked(self._fetch(info)))
        else:
            with self._budget.reserve(info.size):
                self._copy_whole(key, digests)
        stored = find(self.target, key)
        if stored is None:
            # Not `NotFound`: the source has the object, so the caller must not go on without it.
            raise StoreDown(f"the copy of {key} was accepted but is not there")
        same_etag = stored.etag in digests.etags
        if stored.size != info.size or not (same_etag or self._reads_back(digests, in_parts)):
            raise StoreDown(f"the copy of {key} is not what was sent: {stored}")
        return Copied(info.size, True)

    def close(self) -> None:
        """Stop the threads."""
        self._fetchers.shutdown()

    def _copy_whole(self, key: str, digests: Digests) -> None:
        data = self.source.get(key)
        digests.add(data)
        digests.check()
        self.target.put(key, data)

    def _fetch(self, info: ObjectInfo) -> Iterator[bytes]:
        """The pieces of an object in order, some fetched ahead."""

        def piece(start: int) -> bytes:
            return self.source.get(info.key, start, min(PIECE, info.size - start))

        starts = iter(range(0, info.size, PIECE))
        pieces: deque[Future[bytes]] = deque()

        def fetch_next(count: int) -> None:
            for start in itertools.islice(starts, count):
                pieces.append(self._fetchers.submit(piece, start))

        fetch_next(AHEAD)
        try:
            while pieces:
                data = pieces.popleft().result()
                fetch_next(1)
                yield data
        finally:
            for future in pieces:
                future.cancel()

    def _reads_back(self, sent: Digests, in_parts: bool) -> bool:
        """Whether the copy reads as what was sent: needed if the target's etag is no digest."""
        read = Digests(sent.info, in_parts)
        for start in range(0, sent.info.size, PIECE):
            read.add(self.target.get(sent.info.key, start, PIECE))
        return read.etags == sent.etags


def _return_freed_memory() -> None:
    """Make glibc return large blocks to the kernel when they are freed, from now on.

    By default glibc raises its threshold when it sees such blocks, and then keeps tens of MB of
    them per thread.
    """
    with suppress(AttributeError):  # another libc
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 20)


class _ByteBudget:
    """A budget of bytes in memory. A request for more than the whole budget gets the whole."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._turn, self._change = threading.Lock(), threading.Condition()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Wait until `size` bytes are free, and reserve them for the context."""
        size = min(size, self._most)
        # One thread waits at a time; otherwise small requests would overtake a large one for ever.
        with self._turn, self._change:
            self._change.wait_for(lambda: self._left >= size)
            self._left -= size
        try:
            yield
        finally:
            with self._change:
                self._left += size
                self._change.notify_all()
