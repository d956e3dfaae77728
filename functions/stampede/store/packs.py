"""Packs: many images in one Parquet file, each of them one contiguous byte range.

Any Parquet reader opens a pack, and a single ranged GET fetches an image: `image_offsets` finds
each image in the pack's bytes while they are still in memory.
"""

import re
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from isal import isal_zlib

from stampede.errors import Damaged
from stampede.store.checked_parquet import PARQUET_ERRORS, PLACEHOLDER, open_file, read_file, seal
from stampede.store.coverage import COVERAGE, Coverage
from stampede.store.image_offsets import find_images
from stampede.store.merge import one_array, sort_unique
from stampede.store.runs import digest
from stampede.store.schema import CUTOUT_PACKS, PackSpec

# Rows that Arrow adds to a page before it looks at the page's size: pages of about 1 MB, far from
# the 2 GB that a page may have, even if each image is as large as an alert may be.
_PAGE_ROWS = 32
# A night before MJD 0 comes from an alert without a real date, stored before dates were bounded.
_KEY = re.compile(r"(packs|thumbnails|packets)/(-?\d+)/[0-9a-f]{32}\.parquet")


class Pack(NamedTuple):
    """A pack and where its images lie in it: `locations` has a row per image.

    The SHA-256 of 13 MB takes 7 ms of the 95 that storing takes in all processes. It is computed
    once, for the name (as `runs.digest`) and for the signature of the PUT.
    """

    key: str
    data: pa.Buffer
    locations: pa.Table
    sha256: str


def night_of(key: str) -> int | None:
    """The night (integer MJD) of a pack of either kind by its key; None for any other key."""
    found = _KEY.fullmatch(key)
    return int(found[2]) if found else None


def expired(key: str, days: int | None, now_mjd: float) -> bool:
    """Whether a pack is past its retention: `days` after the end of its night; None keeps all."""
    night = night_of(key)
    return days is not None and night is not None and night < int(now_mjd) - days


def write_pack(rows: pa.Table, coverage: Coverage, spec: PackSpec = CUTOUT_PACKS) -> Pack:
    """Pack `rows`, which have the columns of `spec.rows` and hold the alerts of `coverage`.

    The same rows, in any order, with the same coverage give the same bytes and so the same key,
    if the same version of Arrow writes them.
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
        write_page_checksum=True,
    ) as writer:
        if rows.num_rows:
            writer.write_table(rows, row_group_size=rows.num_rows)
        writer.add_key_value_metadata(PLACEHOLDER | {COVERAGE.decode(): coverage.to_json()})
    return _pack(rows, seal(sink.getvalue()), spec)


def read_rows(
    data: bytes | memoryview | pa.Buffer, key: str | None = None
) -> tuple[pa.Table, Coverage]:
    """The rows of a pack, sorted, and the coverage in its footer; every checksum is verified.

    Raises `Damaged`, also if `key` is given and its digest is not that of `data`.
    """
    name = key or "the pack"
    if key is not None and not key.endswith(f"/{digest(data)}.parquet"):
        raise Damaged(f"{key} is damaged: its bytes do not have the digest in its name")
    file = open_file(name, data)
    try:
        coverage = Coverage.from_json(file.metadata.metadata[COVERAGE])
    except PARQUET_ERRORS:
        raise Damaged(f"{name} does not have the footer of a pack") from None
    return read_file(name, file), coverage


def read_pack(
    data: bytes | memoryview | pa.Buffer, spec: PackSpec = CUTOUT_PACKS, key: str | None = None
) -> tuple[Pack, Coverage]:
    """A pack as `write_pack` returned it, from its bytes alone. Raises `Damaged` as `read_rows`."""
    rows, coverage = read_rows(data, key)
    try:
        rows = rows.select(spec.rows.schema.names).cast(spec.rows.schema)
        return _pack(rows, pa.py_buffer(data), spec), coverage
    except PARQUET_ERRORS as error:
        raise Damaged(f"{key or 'the pack'} does not have the rows of a pack: {error}") from None


def _pack(rows: pa.Table, data: pa.Buffer, spec: PackSpec) -> Pack:
    mjd = rows["mjd"].to_numpy()
    night = int(mjd.max()) if len(mjd) else 0
    whole = sha256(data).hexdigest()
    key = f"{spec.prefix}/{night}/{whole[:32]}.parquet"
    images = one_array(rows[spec.image])
    offsets, lengths = find_images(images, data)
    absent = images.is_null()
    columns = {
        "pack": pa.repeat(key, len(images)),
        "offset": pa.array(offsets),
        "length": pa.array(lengths),
        "crc32": pa.array(_checksums(offsets, lengths, data), pa.uint32()),
    }
    schema = spec.locations.schema
    if "redrawn" in schema.names:
        columns["redrawn"] = pa.nulls(len(images), pa.int32())
    locations = rows.select([name for name in schema.names if name not in columns])
    for name, values in columns.items():
        locations = locations.append_column(name, pc.if_else(absent, None, values))
    return Pack(key, data, locations.cast(schema), whole)


def _checksums(offsets: np.ndarray, lengths: np.ndarray, data: pa.Buffer) -> list[int]:
    """The CRC-32 of each image: of the bytes that a reader will get."""
    view = memoryview(data)
    places = zip(offsets.tolist(), lengths.tolist(), strict=True)
    return [isal_zlib.crc32(view[offset : offset + length]) for offset, length in places]
