"""Streams of many cutouts or many light curves, in constant memory.

Ids are read in ascending order, in chunks. A thread reads one chunk, and at most `AHEAD` chunks
are read before the client takes them. The first chunks are small, so an answer starts at once.
Ids that are not found are no error; the end of the answer lists them:

==========  =================================================================================
format      where the missing ids are listed
==========  =================================================================================
tar         the last member, ``missing.json``
arrow       ``stampede.missing`` (JSON) in the custom metadata of the last, empty record batch
parquet     ``stampede.missing`` (JSON) in the key-value metadata of the footer
csv         last rows with only the object id
==========  =================================================================================

An answer without that end is incomplete: the connection breaks if the store fails half-way.
A cutout that retention has deleted or that is damaged costs only itself: in Arrow its ``fits`` is
null and the end lists it in ``stampede.gone`` or ``stampede.damaged``; the end of a tar lists it.
If rows could not be read, the end says so too, except in CSV: ``incomplete``, with
``stampede.incomplete`` in Arrow and Parquet.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from stampede.images.fits import gzip_file
from stampede.read import notes
from stampede.read.images import Absent
from stampede.read.lookup import Lookup
from stampede.read.points import PointFilter
from stampede.read.service import ThreadRunner
from stampede.read.stream_writers import Cutouts, Ids, Writer

T = TypeVar("T")
Id = int | str
Read = Callable[[Sequence], tuple[T, set]]
"""Takes a chunk of ids; returns the data found and the set of ids found."""

FIRST_CHUNK, CHUNK = 8, 128
"""Ids in the first chunk and in later ones: 128 alerts are 6 MB of cutouts."""
AHEAD = 4
"""Chunks of one query that are read at the same time."""
PIECE = 256 << 10
"""Most bytes passed to the server in one piece: small answers are sent between two pieces."""


async def stream(
    ids: Ids, read: Read[T], run: ThreadRunner, writer: Writer
) -> AsyncIterator[memoryview]:
    """The answer to a query for `ids`, in pieces; `read` and `writer` run in threads."""
    missing = np.zeros(len(ids), bool)  # a list of a million strings takes 70 MB
    done = 0
    started = (run(_read_chunk, read, chunk) for chunk in _chunks(ids))
    async for found, not_found in _read_ahead(started):
        missing[done : done + len(not_found)] = not_found
        done += len(not_found)
        for piece in pieces(await run(writer.add, found)):
            yield piece
    for piece in pieces(await run(writer.end, _chosen(ids, missing), notes.incomplete())):
        yield piece


def _chosen(ids: Ids, mask: np.ndarray) -> Ids:
    return ids[mask] if isinstance(ids, np.ndarray) else ids.filter(pa.array(mask))


def _chunks(ids: Ids) -> Iterator[list]:
    start, size = 0, FIRST_CHUNK
    while start < len(ids):
        yield ids[start : start + size].tolist()
        start, size = start + size, min(size * 2, CHUNK)


def _read_chunk(read: Read[T], ids: Sequence[Id]) -> tuple[T, list[bool]]:
    """What is found, and for each id whether it is missing."""
    found, known = read(ids)
    return found, [one_id not in known for one_id in ids]


async def _read_ahead(started: Iterator[Awaitable[T]]) -> AsyncIterator[T]:
    """The results of `started` in order, at most `AHEAD` of them under way at a time."""
    waiting: deque[asyncio.Future[T]] = deque()
    try:
        for awaitable in started:
            waiting.append(asyncio.ensure_future(awaitable))
            if len(waiting) == AHEAD:
                yield await waiting.popleft()
        while waiting:
            yield await waiting.popleft()
    finally:
        for future in waiting:
            future.cancel()


def pieces(data: bytes) -> Iterator[memoryview]:
    """The bytes in pieces of at most `PIECE`."""
    view = memoryview(data)
    return (view[start : start + PIECE] for start in range(0, len(view), PIECE))


def read_cutouts(lookup: Lookup, ids: Sequence[int]) -> tuple[Cutouts, set[int]]:
    """The cutouts of a chunk of alerts, by pack; those that the survey did not send come last.

    Files are gzipped here, in the threads that read: chunks that wait for a slow client hold less.
    """
    locations = lookup.locations(ids)
    found: Cutouts = [
        (location, file if isinstance(file, Absent) else gzip_file(file))
        for location, file in lookup.images.many(locations)
    ]
    found += [(location, Absent.NOT_SENT) for location in locations if location.pack is None]
    return found, {location.alert_id for location in locations}


def read_light_curves(
    lookup: Lookup, wanted: PointFilter, ids: Sequence[str]
) -> tuple[pa.Table, set[str]]:
    """The light curves of a chunk of objects."""
    rows = lookup.light_curves(ids)
    return wanted.apply(rows), set(rows["object_id"].unique().to_pylist())
