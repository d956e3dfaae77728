"""The chunks in which a large query is read: how many ids each has, and how many are held at once.

What clients do not take stays in memory. So a chunk has about `CHUNK_BYTES` of data, and the fewer
chunks a query reads ahead, the more queries are running: all of them together hold `MOST_CHUNKS`,
or one each.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from stampede.read.formats.completeness import Ids
    from stampede.read.formats.writers import Cutouts

T = TypeVar("T")

FIRST_CHUNK, CHUNK = 8, 128
"""Ids in the first chunk, and most in later ones: 128 alerts are 6 MB of cutouts."""
CHUNK_BYTES = 8 << 20
"""Bytes of data from which a chunk has fewer ids: 128 light curves of 1,000 points are 25 MB."""
AHEAD, MOST_CHUNKS = 4, 8
"""Most chunks of one query at the same time, and of all queries unless each has only one."""


class Chunks:
    """The ids of a query in chunks, the first ones small."""

    def __init__(self, ids: "Ids") -> None:
        self._ids = ids
        self._most = CHUNK

    def __iter__(self) -> Iterator[list[Any]]:
        start, size = 0, FIRST_CHUNK
        while start < len(self._ids):
            yield self._ids[start : start + size].tolist()
            start, size = start + size, min(size * 2, self._most)

    def note(self, ids: int, size: int) -> None:
        """Let later chunks have as many ids as fit, if so many ids have `size` bytes of data."""
        self._most = max(1, min(CHUNK, ids * CHUNK_BYTES // max(1, size)))


def bytes_of(found: "pa.Table | Cutouts") -> int:
    """Bytes of what a chunk found."""
    if isinstance(found, pa.Table):
        return int(found.nbytes)
    return sum(len(file) for _, file in found if isinstance(file, bytes))


def chunk_limit(queries: int) -> int:
    """How many chunks each of so many queries may hold."""
    return max(1, min(AHEAD, MOST_CHUNKS // max(1, queries)))


async def read_ahead(started: Iterator[Awaitable[T]], most: Callable[[], int]) -> AsyncIterator[T]:
    """The results of `started` in order; `most` says how many of them may be held at a time."""
    waiting: deque[asyncio.Future[T]] = deque()
    try:
        for awaitable in started:
            waiting.append(asyncio.ensure_future(awaitable))
            while len(waiting) >= most():
                yield await waiting.popleft()
        while waiting:
            yield await waiting.popleft()
    finally:
        for future in waiting:
            future.cancel()
