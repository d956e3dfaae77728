"""Packs: many images in one Parquet file, each of them one contiguous byte range.

Any tool opens a pack; a single ranged GET fetches an image. For a BYTE_ARRAY column that is
PLAIN and not compressed Parquet lays each value down as it is, after its length (4 bytes, little
endian), so the values are found again while the bytes are still in memory.
"""

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stampede.alerts.columns import CUTOUT, CUTOUT_PLACE_KEY, THUMBNAIL, THUMBNAIL_KEY
from stampede.store.coverage import Coverage
from stampede.store.merge import CUTOUTS, THUMBNAILS, TableSpec, sort_unique

COVERAGE = b"stampede.coverage"
# Rows handed to a page before its size is looked at: pages of about 1 MB, far from the 2 GB at
# which a page cannot be written, even where each image is as large as an alert may be.
_PAGE_ROWS = 32
# Bytes at both ends of an image that are compared where it was looked for.
_EDGE = 64
_AHEAD = 128  # images looked for at once: a page of those of 15 KB has some 90
_KEY = re.compile(r"(packs|thumbnails)/(\d+)/[0-9a-f]{32}\.parquet")


@dataclass(frozen=True)
class PackSpec:
    """What a kind of pack is: its rows, which column holds the image, the table of places."""

    rows: TableSpec
    image: str
    places: TableSpec

    @property
    def prefix(self) -> str:
        """First part of the packs' keys."""
        return self.rows.name


# Images of one alert side by side; of two for one key the later stays, and any before none.
CUTOUT_PACKS = PackSpec(
    TableSpec("packs", CUTOUT, CUTOUT_PLACE_KEY, ("mjd", "fits")), "fits", CUTOUTS
)
THUMBNAIL_PACKS = PackSpec(
    TableSpec("thumbnails", THUMBNAIL, THUMBNAIL_KEY, ("mjd", "png")), "png", THUMBNAILS
)


class Pack(NamedTuple):
    """A pack and where its images lie in it, a row of the table of places for each.

    Of 13 MB the SHA-256 takes 7 ms of the 95 that storing takes in all processes: it is made
    once, for the name (as `runs.digest`) and for the signature of the PUT.
    """

    key: str
    data: pa.Buffer
    places: pa.Table
    sha256: str


def night_of(key: str) -> int | None:
    """The night (integer MJD) of a pack of either kind by its key; None for any other key."""
    found = _KEY.fullmatch(key)
    return int(found[2]) if found else None


def expired(key: str, days: int | None, now_mjd: float) -> bool:
    """Whether a pack of this key is to be there no more, as packs are kept for `days`.

    Counted from the end of its night; where `days` is None they are kept for ever.
    """
    night = night_of(key)
    return days is not None and night is not None and night < int(now_mjd) - days


def write_pack(rows: pa.Table, coverage: Coverage, spec: PackSpec = CUTOUT_PACKS) -> Pack:
    """Pack `rows`, such as `CUTOUT`, which hold the alerts of `coverage`.

    The same rows, in any order, with the same coverage give the same bytes and so the same key
    (as long as they are written by the same version of Arrow).
    """
    schema, image = spec.rows.schema, spec.image
    rows = sort_unique(rows.select(schema.names).cast(schema), spec.rows)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema.remove_metadata(),
        version="2.6",
        compression={name: "NONE" if name == image else "LZ4" for name in schema.names},
        use_dictionary=[field.name for field in schema if pa.types.is_string(field.type)],
        column_encoding={image: "PLAIN"},
        write_statistics=["alert_id", "object_id", "mjd"],
        write_batch_size=_PAGE_ROWS,
        store_schema=False,
    ) as writer:
        if rows.num_rows:
            writer.write_table(rows, row_group_size=rows.num_rows)
        writer.add_key_value_metadata({COVERAGE.decode(): coverage.to_json()})
    return _pack(rows, sink.getvalue(), spec)


def read_rows(data: bytes | memoryview | pa.Buffer) -> tuple[pa.Table, Coverage]:
    """The rows of a pack, sorted, and what its footer says they cover."""
    file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)))
    return file.read(), Coverage.from_json(file.metadata.metadata[COVERAGE])


def read_pack(
    data: bytes | memoryview | pa.Buffer, spec: PackSpec = CUTOUT_PACKS
) -> tuple[Pack, Coverage]:
    """A pack as `write_pack` gave it, from its bytes alone."""
    rows, coverage = read_rows(data)
    return _pack(rows, pa.py_buffer(data), spec), coverage


def places_of(data: bytes | memoryview | pa.Buffer, spec: PackSpec = CUTOUT_PACKS) -> pa.Table:
    """Where the images of a pack lie, computed again from its bytes."""
    return read_pack(data, spec)[0].places


def _pack(rows: pa.Table, data: pa.Buffer, spec: PackSpec) -> Pack:
    mjd = rows["mjd"].to_numpy()
    night = int(mjd.max()) if len(mjd) else 0
    whole = sha256(data).hexdigest()
    key = f"{spec.prefix}/{night}/{whole[:32]}.parquet"
    column = rows[spec.image]
    # Combined, even one chunk would be copied: a quarter of all that a pack takes here.
    images = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(images, pa.ChunkedArray):
        images = pa.concat_arrays(images.chunks)
    offsets, lengths = _find(images, data)
    absent = images.is_null()
    found = {
        "pack": pa.repeat(key, len(images)),
        "offset": pa.array(offsets),
        "length": pa.array(lengths),
    }
    schema = spec.places.schema
    places = rows.select([name for name in schema.names if name not in found])
    for name, column in found.items():
        places = places.append_column(name, pc.if_else(absent, None, column))
    return Pack(key, data, places.cast(schema), whole)


def _find(images: pa.Array, data: pa.Buffer) -> tuple[np.ndarray, np.ndarray]:
    """Offset in `data` and length of each image that is not null.

    Values lie in order, one right behind the other except where a new page starts. So where one
    was found, those after it are where they must be, up to the page's end: as far as their lengths
    and first bytes are there too. Any match at or before a value's true place is as good, so no
    value is ever searched for in vain.
    """
    offsets = np.zeros(len(images), np.int64)
    if not len(images):
        return offsets, offsets
    _, bounds, values = images.buffers()
    bounds = np.frombuffer(bounds, np.int32)[images.offset : images.offset + len(images) + 1]
    lengths = np.diff(bounds)
    values = values or pa.py_buffer(b"")
    rows = np.flatnonzero(images.is_valid().to_numpy(zero_copy_only=False))
    starts, sizes = bounds[rows], lengths[rows]
    steps = np.cumsum(4 + sizes, dtype=np.int64) - 4 - sizes  # from the first, were there no pages
    long = sizes >= 8
    heads = _words(values, "<u8", np.where(long, starts, 0))

    def lies(number: int, at: int) -> bool:
        """Whether it is here: its length, its first and its last bytes."""
        value = values.slice(int(starts[number]), int(sizes[number]))
        edge = min(value.size, _EDGE)
        return _begin(value) == data.slice(at, 4 + edge).to_pybytes() and data.slice(
            at + 4 + value.size - edge, edge
        ).equals(value.slice(value.size - edge))

    at = done = 0
    while done < len(rows):
        while not lies(done, at):
            value = values.slice(int(starts[done]), int(sizes[done]))
            at = _next(data, _begin(value), at + 1)
        some = slice(done, done + _AHEAD)
        there = at + steps[some] - steps[done]
        same = long[some] & (_words(data, "<u4", there) == sizes[some])
        same &= _words(data, "<u8", there + 4) == heads[some]
        many = max(1, int(np.append(same, False).argmin()))
        while not lies(done + many - 1, int(there[many - 1])):
            many -= 1
        offsets[rows[some][:many]] = there[:many] + 4
        at, done = int(there[many - 1] + 4 + sizes[done + many - 1]), done + many
    return offsets, lengths


def _begin(value: pa.Buffer) -> bytes:
    """How it begins in a pack."""
    return value.size.to_bytes(4, "little") + value.slice(0, min(value.size, _EDGE)).to_pybytes()


def _words(data: pa.Buffer, kind: str, places: np.ndarray) -> np.ndarray:
    """The numbers at these places, which need not be aligned; beyond the end the last one."""
    room = data.size + 1 - np.dtype(kind).itemsize
    if room <= 0:
        return np.zeros(len(places), kind)
    return np.ndarray(room, kind, data, strides=(1,))[np.minimum(places, room - 1)]


def _next(data: pa.Buffer, start: bytes, at: int) -> int:
    """Where `start` lies first, from `at` on: most often just behind a page's header."""
    for window in (1 << 12, 1 << 17, data.size):
        place = data.slice(at, min(window, data.size - at)).to_pybytes().find(start)
        if place >= 0:
            return at + place
    raise ValueError("an image is not in its pack as it was given: is its column PLAIN?")
