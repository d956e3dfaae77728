"""Large answers made piece by piece: many cutouts, many light curves, in constant memory.

Ids come in ascending order and are taken in chunks; a chunk is looked up and read in one thread,
a few of them ahead of the reader, never more. The first chunks are small, so that an answer
starts at once. Ids of which nothing is stored are not fatal: they are listed at the end.

==========  =================================================================================
format      where the missing ids are listed
==========  =================================================================================
tar         the last member, ``missing.json``
arrow       ``stampede.missing`` (JSON) in the custom metadata of the last, empty record batch
parquet     ``stampede.missing`` (JSON) in the key-value metadata of the footer
csv         last rows with only the object id
==========  =================================================================================

An answer without that end was cut short: the connection breaks where the store fails half-way.
Cutouts that retention has deleted are listed there too in a tar; in Arrow they lack ``fits``.
"""

import asyncio
import json
import tarfile
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stampede.alerts.columns import CUTOUT, DETECTION
from stampede.read.formats import to_csv
from stampede.read.lookup import CutoutLocation, Lookup, select

T = TypeVar("T")

FIRST_CHUNK, CHUNK = 8, 128
"""Ids in the first chunk and in later ones: 128 alerts are 6 MB of cutouts."""
AHEAD = 4
"""Chunks under way at once in one query."""
PIECE = 256 << 10
"""Bytes handed to the server at once, so that small answers get in between."""
ROW_GROUP = 50_000
MISSING = "stampede.missing"

CUTOUT_ROWS = pa.schema(
    [CUTOUT.field(name) for name in ("alert_id", "survey", "kind", "object_id", "mjd", "fits")]
)
Cutouts = list[tuple[CutoutLocation, bytes | None]]
_BLANK = tarfile.TarInfo().tobuf(tarfile.USTAR_FORMAT)
_REST = sum(_BLANK[156:])  # of a header's checksum: what no member changes


class Writer(Protocol):
    """Turns what was found, chunk by chunk, into the bytes of one format."""

    media_type: str

    def add(self, found: Any) -> bytes:
        """The bytes of one chunk."""

    def end(self, missing: Sequence[int | str]) -> bytes:
        """The last bytes, with the ids of which nothing was found."""


Ids: TypeAlias = np.ndarray | pa.Array


async def stream(
    ids: Ids, read: Callable[[Sequence], tuple[T, set]], run: Callable, writer: Writer
) -> AsyncIterator[memoryview]:
    """The answer to a query about `ids`, in pieces.

    Parameters
    ----------
    read
        Gives what is found of a chunk of ids, and the set of ids found.
    run
        Runs a function in a thread.
    """
    missing: list[int | str] = []
    started = (run(_read_chunk, read, some) for some in _chunks(ids))
    async for found, absent in _ahead(started):
        missing += absent
        for piece in _pieces(await run(writer.add, found)):
            yield piece
    for piece in _pieces(await run(writer.end, missing)):
        yield piece


def _pieces(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[at : at + PIECE] for at in range(0, len(view), PIECE))


def _read_chunk(read: Callable, ids: Sequence) -> tuple[Any, list]:
    found, known = read(ids)
    return found, [one for one in ids if one not in known]


def _chunks(ids: Ids) -> Iterator[list]:
    at, size = 0, FIRST_CHUNK
    while at < len(ids):
        yield ids[at : at + size].tolist()
        at, size = at + size, min(size * 2, CHUNK)


async def _ahead(started: Iterator[Awaitable[T]]) -> AsyncIterator[T]:
    """Results in order, with `AHEAD` of them under way."""
    waiting: deque[asyncio.Future[T]] = deque()
    try:
        for one in started:
            waiting.append(asyncio.ensure_future(one))
            if len(waiting) == AHEAD:
                yield await waiting.popleft()
        while waiting:
            yield await waiting.popleft()
    finally:
        for future in waiting:
            future.cancel()


def read_cutouts(lookup: Lookup, ids: Sequence[int]) -> tuple[Cutouts, set[int]]:
    """Cutouts of a chunk of alerts, by pack; those that the survey did not send last."""
    places = lookup.places(ids)
    found: Cutouts = list(lookup.all_fits(places))
    found += [(place, None) for place in places if place.pack is None]
    return found, {place.alert_id for place in places}


def read_light_curves(
    lookup: Lookup, wanted: dict, ids: Sequence[str]
) -> tuple[pa.Table, set[str]]:
    """Light curves of a chunk of objects."""
    rows = lookup.light_curves(ids)
    return select(rows, **wanted), set(rows["object_id"].unique().to_pylist())


class TarWriter:
    """A tar file with a member ``<alert_id>/<kind>.fits.gz`` for each cutout (POSIX ustar)."""

    media_type = "application/x-tar"

    def __init__(self) -> None:
        self._absent: list[str] = []
        self._gone: list[str] = []

    def add(self, found: Cutouts) -> bytes:
        """See `Writer.add`."""
        parts: list[bytes] = []
        for place, fits in found:
            name = f"{place.alert_id}/{place.kind}"
            if fits is None:
                (self._gone if place.pack else self._absent).append(name)
            else:
                parts += _member(f"{name}.fits.gz", fits, place.mjd)
        return b"".join(parts)

    def end(self, missing: Sequence[int | str]) -> bytes:
        """See `Writer.end`; also lists the cutouts that were not sent or are not kept."""
        listed = {
            "unknown_alerts": [*map(str, missing)],
            "no_such_cutouts": self._absent,
            "gone": self._gone,
        }
        parts = _member("missing.json", json.dumps(listed).encode())
        return b"".join(parts) + bytes(2 * tarfile.BLOCKSIZE)


def _member(name: str, data: bytes, mjd: float = 40587.0) -> tuple[bytes, bytes, bytes]:
    """Header, data and padding; `name` is ASCII, up to 100 characters."""
    # As tarfile makes it, in a fifth of the time or less: that was a sixth of a large query.
    seconds = max(0, int((mjd - 40587) * 86400))  # since 1970-01-01
    start = name.encode().ljust(100, b"\0") + _BLANK[100:124]
    start += b"%011o\0%011o\0" % (len(data), seconds)
    checksum = sum(start) + sum(b" " * 8) + _REST
    head = start + b"%06o\0 " % checksum + _BLANK[156:]
    return head, data, bytes(-len(data) % tarfile.BLOCKSIZE)


class _Drain:
    """A file that pyarrow writes and we empty."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class ArrowWriter:
    """An Arrow IPC stream; the missing ids come with the last, empty batch."""

    media_type = "application/vnd.apache.arrow.stream"

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._drain = schema, _Drain()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._drain, "w"), schema)

    def add(self, found: pa.Table | Cutouts) -> bytes:
        """See `Writer.add`."""
        table = found if isinstance(found, pa.Table) else _cutout_rows(found)
        if table.num_rows:
            self._writer.write_table(table)
        return self._drain.take()

    def end(self, missing: Sequence[int | str]) -> bytes:
        """See `Writer.end`."""
        empty = pa.RecordBatch.from_pylist([], self._schema)
        self._writer.write_batch(empty, custom_metadata={MISSING: json.dumps([*map(str, missing)])})
        self._writer.close()
        return self._drain.take()


def _cutout_rows(found: Cutouts) -> pa.Table:
    rows = [{**place._asdict(), "fits": fits} for place, fits in found]
    return pa.Table.from_pylist(rows, CUTOUT_ROWS)


class ParquetWriter:
    """A Parquet file, zstd; the missing ids are in the footer."""

    media_type = "application/vnd.apache.parquet"

    def __init__(self) -> None:
        self._drain, self._waiting, self._rows = _Drain(), [DETECTION.empty_table()], 0
        sink = pa.PythonFile(self._drain, "w")
        self._writer = pq.ParquetWriter(sink, DETECTION, compression="zstd")

    def add(self, found: pa.Table) -> bytes:
        """See `Writer.add`; empty until a row group is full."""
        self._waiting.append(found)
        self._rows += found.num_rows
        return self._flush() if self._rows >= ROW_GROUP else b""

    def end(self, missing: Sequence[int | str]) -> bytes:
        """See `Writer.end`."""
        last = self._flush()
        self._writer.add_key_value_metadata({MISSING: json.dumps([*map(str, missing)])})
        self._writer.close()
        return last + self._drain.take()

    def _flush(self) -> bytes:
        rows = pa.concat_tables(self._waiting)
        if rows.num_rows:
            self._writer.write_table(rows)
        self._waiting, self._rows = [DETECTION.empty_table()], 0
        return self._drain.take()


class CsvWriter:
    """CSV with a header; a missing id is a row with nothing else in it."""

    media_type = "text/csv; charset=utf-8; header=present"

    def __init__(self) -> None:
        self._header = True

    def add(self, found: pa.Table) -> bytes:
        """See `Writer.add`."""
        data = to_csv(found, header=self._header)
        self._header = False
        return data

    def end(self, missing: Sequence[int | str]) -> bytes:
        """See `Writer.end`."""
        blank = "," * (len(DETECTION) - 1)
        return "".join(f"{one}{blank}\n" for one in missing).encode()
