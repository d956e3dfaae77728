"""Streams of many cutouts or many light curves, in constant memory.

Ids are read in ascending order, in chunks (`chunks`). A thread reads one chunk, and few chunks are
read before the client takes them. The first chunks are small, so a response starts at once.
Ids that are not found are no error. The end of the response lists them, and apart from them the ids
that may have rows that cannot be read:

=======  ==========================================  ===============================================
format   missing ids                                 unreadable ids
=======  ==========================================  ===============================================
tar      ``unknown_alerts`` in the last member,      ``unreadable_alerts`` there
         ``missing.json``
arrow    ``stampede.missing`` (JSON) in the custom   ``stampede.unreadable`` there
         metadata of the last, empty record batch
parquet  ``stampede.missing`` (JSON) in the          ``stampede.unreadable`` there
         key-value metadata of the footer
csv      none: they have no row                      none: the connection is broken off
=======  ==========================================  ===============================================

If rows could not be read, the end has the reasons too: ``incomplete`` in a tar,
``stampede.incomplete`` in Arrow and Parquet. CSV, JSON and VOTable have no end that every client
looks at. So a stream of these that lacks rows sends those that it has, and then breaks the
connection off before its last bytes. A stream of any format does so if the store fails half-way:
a response without its end is incomplete.

A cutout that retention has deleted or that is damaged costs only itself: in Arrow its ``fits`` is
null and the end lists it in ``stampede.gone`` or ``stampede.damaged``; the end of a tar lists it.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence, Set
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from stampede.images.fits import gzip_file
from stampede.lookup import response_warnings
from stampede.lookup.as_of import Told
from stampede.lookup.lookup import Lookup
from stampede.lookup.packs.images import Absent
from stampede.lookup.points import PointFilter
from stampede.read.errors import BrokenOff
from stampede.read.formats.completeness import Completeness, Ids
from stampede.read.formats.writers import Cutouts, Writer
from stampede.read.service import ThreadRunner
from stampede.read.web.chunks import Chunks, bytes_of, read_ahead

T = TypeVar("T")
Id = int | str


class Chunk(NamedTuple, Generic[T]):
    """What is found of some ids: the data, the ids that are known, and those not wholly read."""

    found: T
    known: Set[Id]
    unreadable: Set[Id]


Read = Callable[[Sequence[Any]], Chunk[T]]
"""Reads a chunk of ids."""

READ, MISSING, UNREADABLE = range(3)  # what became of an id

PIECE = 256 << 10
"""Most bytes passed to the server in one piece: small responses are sent between two pieces."""


async def stream(
    ids: Ids, read: Read[T], run: ThreadRunner, writer: Writer, most_chunks: Callable[[], int]
) -> AsyncIterator[memoryview]:
    """The response to a query for `ids`, in pieces; `read` and `writer` run in threads.

    `most_chunks` says how many chunks the query may hold now.

    Raises `StoreDown`, `BrokenOff`: then the response has no end.
    """
    fates = np.zeros(len(ids), np.uint8)  # a list of a million strings takes 70 MB
    done = 0
    chunks = Chunks(ids)
    started = (run(_read_chunk, read, chunk) for chunk in chunks)
    async for found, of_chunk in read_ahead(started, most_chunks):
        fates[done : done + len(of_chunk)] = of_chunk
        done += len(of_chunk)
        chunks.note(len(of_chunk), bytes_of(found))
        data = await run(writer.add, found)
        del found  # its bytes are in `data`, for which the client may let the server wait
        for piece in pieces(data):
            yield piece
    missing, unreadable = (_chosen(ids, fates == fate) for fate in (MISSING, UNREADABLE))
    completeness = Completeness(missing, unreadable, response_warnings.incomplete())
    for piece in pieces(await run(last_bytes, writer, completeness)):
        yield piece


def last_bytes(writer: Writer, completeness: Completeness) -> bytes:
    """The end of a stream. Raises `BrokenOff` if its format cannot say what it lacks."""
    if (completeness.reasons or len(completeness.unreadable)) and not writer.has_end:
        raise BrokenOff(", ".join(completeness.reasons) or "it has ids that cannot be read")
    return writer.end(completeness)


def _chosen(ids: Ids, mask: np.ndarray) -> Ids:
    return ids[mask] if isinstance(ids, np.ndarray) else ids.filter(pa.array(mask))


def _read_chunk(read: Read[T], ids: Sequence[Id]) -> tuple[T, list[int]]:
    """What is found, and what became of each id."""
    found, known, unreadable = read(ids)

    def fate(one_id: Id) -> int:
        if one_id in unreadable:
            return UNREADABLE
        return READ if one_id in known else MISSING

    return found, [*map(fate, ids)]


def pieces(data: bytes) -> Iterator[memoryview]:
    """The bytes in pieces of at most `PIECE`."""
    view = memoryview(data)
    return (view[start : start + PIECE] for start in range(0, len(view), PIECE))


def read_cutouts(lookup: Lookup, ids: Sequence[int]) -> Chunk[Cutouts]:
    """The cutouts of a chunk of alerts, by pack; those that the survey did not send come last.

    Files are gzipped here, in the threads that read: chunks that wait for a slow client hold less.
    """
    locations = lookup.locations(ids)
    found: Cutouts = [
        (location, file if isinstance(file, Absent) else gzip_file(file))
        for location, file in lookup.images.many(locations)
    ]
    found += [(location, Absent.NOT_SENT) for location in locations if location.pack is None]
    known = {location.alert_id for location in locations}
    return Chunk(found, known, {*lookup.cutouts.unreadable(ids)})


def read_light_curves(lookup: Lookup, wanted: PointFilter, ids: Sequence[str]) -> Chunk[pa.Table]:
    """The light curves of a chunk of objects."""
    rows = lookup.light_curves.of_objects(ids)
    known = set(rows["object_id"].unique().to_pylist())
    return Chunk(wanted.apply(rows), known, {*lookup.detections.unreadable(ids)})


def read_told(
    told: Callable[[Sequence[Any]], Told], wanted: PointFilter, ids: Sequence[Id]
) -> Chunk[pa.Table]:
    """What packets told of a chunk of objects, or with a chunk of alerts."""
    rows, known, unreadable = told(ids)
    return Chunk(wanted.apply(rows), known, unreadable)
