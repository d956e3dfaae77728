"""Packs of packets: many messages in one Parquet file, each to be had by one ranged GET.

``packets/<night>/<digest>.parquet`` holds the alerts of one night in one batch, sorted by object,
so that the schema and the history which packets repeat compress together. One page of the column
`packet` holds those of about half a megabyte: large enough for that, small enough for one request.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256

import numpy as np
import pyarrow as pa

from stampede.errors import Damaged
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.decompression import Bytes
from stampede.store.offsets.coverage import COVERAGE, Coverage
from stampede.store.packs.pack import Pack, read_rows
from stampede.store.parquet import zstd
from stampede.store.parquet.checksums import PARQUET_ERRORS, PLACEHOLDER, seal
from stampede.store.parquet.pages import pages
from stampede.store.parquet.writer import DATA_PAGE, Column, Page, small, write
from stampede.store.programmes.keys import programids_of, suffix
from stampede.store.runs.merge import one_array, sort_unique
from stampede.store.runs.run_name import name_of
from stampede.store.runs.schema import PACKET_PACKS

# Bytes of a page before it is compressed. 34 packets of one object, B each: 2,823 with 64 KB,
# 1,264 with 256 KB, 645 with 1 MB; and 512 KB of real LSST packets are a page of 240 KB.
PAGE_BYTES = 512 << 10
_ORDER = (
    *("object_id", "mjd", "alert_id", "survey"),
    *("topic", "partition", "offset", "crc32", "framed_crc32"),
)
_BOUNDED = ("alert_id", "object_id", "mjd")  # columns with their least and greatest value
_PREFIX = 4  # bytes of the length before each packet


def write_packets(
    rows: pa.Table,
    packets: Sequence[Sequence[Bytes]],
    coverage: Coverage,
    programids: Iterable[int] = (),
) -> Pack:
    """Pack packets, at least one, all of one night.

    The same packets, in any order, with the same coverage give the same bytes and so the same key.

    Parameters
    ----------
    rows
        The columns of `columns.PACKET` but `packet`, a row for each packet.
    packets
        Each in pieces; nothing copies them before their page is made.
    coverage
        That of the packets.
    programids
        The observing programmes of each, its history included; none if its survey has none.
    """
    schema = PACKET_PACKS.rows.schema
    others = pa.schema([field for field in schema if field.name != PACKET_PACKS.image])
    rows = rows.select(others.names).cast(others)
    order = pc.sort_indices(rows.select(_ORDER), [(name, "ascending") for name in _ORDER])
    if not np.array_equal(order.to_numpy(), np.arange(rows.num_rows)):
        rows, packets = rows.take(order), [packets[number] for number in order.to_pylist()]
    columns = [
        _packets(field, packets) if field.name == PACKET_PACKS.image else _column(field, rows)
        for field in schema
    ]
    file = write(columns, rows.num_rows, PLACEHOLDER | {COVERAGE.decode(): coverage.to_json()})
    return _pack(rows, seal(file.data), programids)


def _packets(field: pa.Field, packets: Sequence[Sequence[Bytes]]) -> Column:
    """The column of packets. A page ends with the packet that fills it."""
    pages: list[Page] = []
    body: list[Bytes] = []
    held = size = 0
    for number, pieces in enumerate(packets, 1):
        length = sum(map(len, pieces))
        body += length.to_bytes(_PREFIX, "little"), *pieces
        held, size = held + 1, size + _PREFIX + length
        if size >= PAGE_BYTES or number == len(packets):
            pages.append(Page(DATA_PAGE, [zstd.compress(b"".join(body))], size, held))
            body, held, size = [], 0, 0
    return Column(field, pages)


def _column(field: pa.Field, rows: pa.Table) -> Column:
    column = small(field, one_array(rows[field.name]))
    return column if field.name in _BOUNDED else column._replace(least=None, greatest=None)


def read_packets(
    data: bytes | memoryview | pa.Buffer, key: str | None = None
) -> tuple[Pack, Coverage]:
    """A pack as `write_packets` returned it, from its bytes alone. Raises `Damaged`."""
    rows, coverage = read_rows(data, key)
    schema = PACKET_PACKS.rows.schema
    try:
        rows = with_columns(rows).select(schema.names).cast(schema)
        return _pack(rows, pa.py_buffer(data), programids_of(key or "")), coverage
    except PARQUET_ERRORS as error:
        raise Damaged(f"{key or 'the pack'} does not have the rows of packets: {error}") from None


def with_columns(rows: pa.Table) -> pa.Table:
    """The rows of an earlier pack with nulls in the columns that came since."""
    for field in PACKET_PACKS.rows.schema:
        if field.nullable and field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows


def _pack(rows: pa.Table, data: pa.Buffer, programids: Iterable[int]) -> Pack:
    mjd = rows["mjd"].to_numpy()
    whole = sha256(data).hexdigest()
    night = int(np.floor(mjd.max())) if len(mjd) else 0
    key = f"{PACKET_PACKS.prefix}/{night}/{name_of(whole)}{suffix(programids)}.parquet"
    found = pages(data, PACKET_PACKS.image)
    sizes = [page.values for page in found]
    if sum(sizes) != rows.num_rows:
        raise Damaged(f"{key} does not have its rows in its pages")
    places = {
        "pack": pa.repeat(key, rows.num_rows),
        "offset": pa.array(np.repeat([page.offset for page in found], sizes), pa.int64()),
        "length": pa.array(np.repeat([page.length for page in found], sizes), pa.int32()),
        "row": pa.array([row for size in sizes for row in range(size)], pa.int32()),
    }
    schema = PACKET_PACKS.locations.schema
    columns = [places[name] if name in places else rows[name] for name in schema.names]
    locations = pa.table(columns, schema.names).cast(schema)
    # A message that was sent twice has one location, as it will have in the table.
    return Pack(key, data, sort_unique(locations, PACKET_PACKS.locations), whole)
