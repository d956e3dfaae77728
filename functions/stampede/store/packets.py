"""Packs of packets: many messages in one Parquet file, each to be had by one ranged GET.

``packets/<night>/<digest>.parquet`` holds the alerts of one night in one batch, sorted by object,
so that the schema and the history which packets repeat compress together. One page of the column
`packet` holds those of about half a megabyte: large enough for that, small enough for one request.
"""

from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stampede.errors import Damaged
from stampede.store.checked_parquet import PARQUET_ERRORS, PLACEHOLDER, seal
from stampede.store.coverage import COVERAGE, Coverage
from stampede.store.merge import sort_unique
from stampede.store.packs import Pack, read_rows
from stampede.store.pages import pages
from stampede.store.schema import PACKET_PACKS

# Bytes of a page before it is compressed. 34 packets of one object, B each: 2,823 with 64 KB,
# 1,264 with 256 KB, 645 with 1 MB; and 512 KB of real LSST packets are a page of 240 KB.
PAGE_BYTES = 512 << 10
# zstd at level 1: 20 to 25 us for a real ZTF packet. Level 3 takes a third more to save 3 %.
LEVEL = 1
_ORDER = ("object_id", "mjd", "alert_id", "survey", "topic", "partition", "offset", "crc32")


def write_packets(rows: pa.Table, coverage: Coverage) -> Pack:
    """Pack `rows` of `columns.PACKET`, at least one, all of one night; `coverage` is theirs.

    The same rows, in any order, with the same coverage give the same bytes and so the same key.
    """
    schema = PACKET_PACKS.rows.schema
    rows = rows.select(schema.names).cast(schema)
    rows = rows.sort_by([(name, "ascending") for name in _ORDER]).combine_chunks()
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema.remove_metadata(),
        version="2.6",
        compression="ZSTD",
        compression_level=LEVEL,
        use_dictionary=["survey", "object_id", "topic", "partition", "headers"],
        column_encoding={"packet": "PLAIN"},
        data_page_size=PAGE_BYTES,
        write_batch_size=1,  # so that a page ends with the packet that fills it
        write_statistics=["alert_id", "object_id", "mjd"],
        store_schema=False,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(rows, row_group_size=rows.num_rows)
        writer.add_key_value_metadata(PLACEHOLDER | {COVERAGE.decode(): coverage.to_json()})
    return _pack(rows, seal(sink.getvalue()))


def read_packets(
    data: bytes | memoryview | pa.Buffer, key: str | None = None
) -> tuple[Pack, Coverage]:
    """A pack as `write_packets` returned it, from its bytes alone. Raises `Damaged`."""
    rows, coverage = read_rows(data, key)
    schema = PACKET_PACKS.rows.schema
    try:
        return _pack(rows.select(schema.names).cast(schema), pa.py_buffer(data)), coverage
    except PARQUET_ERRORS as error:
        raise Damaged(f"{key or 'the pack'} does not have the rows of packets: {error}") from None


def _pack(rows: pa.Table, data: pa.Buffer) -> Pack:
    mjd = rows["mjd"].to_numpy()
    whole = sha256(data).hexdigest()
    night = int(np.floor(mjd.max())) if len(mjd) else 0
    key = f"{PACKET_PACKS.prefix}/{night}/{whole[:32]}.parquet"
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
