"""Packs of packets: many messages in one Parquet file, each to be had by one ranged GET.

``packets/<night>/<digest>.parquet`` holds the alerts of one night in one batch, sorted so that
those of an object lie together: the schema and the history which packets repeat compress together.
One page of the column `packet` holds those of about half a megabyte: large enough for that, small
enough for one request. Packs are merged later (`store/compaction/packet_merge.py`): then the
packets of an object are a page.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from stampede.errors import Damaged
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.decompression import Bytes
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import Pack, footer_pairs, read_small_columns
from stampede.store.packs.pack_name import Merged, PackName
from stampede.store.parquet import zstd
from stampede.store.parquet.checksums import PARQUET_ERRORS, seal
from stampede.store.parquet.pages import pages, values
from stampede.store.parquet.writer import DATA_PAGE, Column, Page, small, write
from stampede.store.programmes.keys import programids_of
from stampede.store.runs.merge import one_array, sort_unique
from stampede.store.runs.schema import PACKET_PACKS

# Bytes of a page before it is compressed. 34 packets of one object, B each: 2,823 with 64 KB,
# 1,264 with 256 KB, 645 with 1 MB; and 512 KB of real LSST packets are a page of 240 KB.
PAGE_BYTES = 512 << 10
MOST_PAGE_BYTES = 4 << 20
"""Bytes after which a page of one object ends. To decompress it takes 1 to 2 ms."""
_ORDER = (
    *("object_id", "mjd", "alert_id", "survey"),
    *("topic", "partition", "offset", "crc32", "framed_crc32"),
)
_BOUNDED = ("alert_id", "object_id", "mjd")  # columns with their least and greatest value
_PREFIX = 4  # bytes of the length before each packet
SMALL = tuple(name for name in PACKET_PACKS.rows.schema.names if name != PACKET_PACKS.image)
"""The columns of a pack beside the packets."""


class PacketPages:
    """The pages of a pack, made while packets come in the order of the pack.

    A page ends where the next object begins, once it has `PAGE_BYTES`, or with the packet by which
    it has `MOST_PAGE_BYTES`.

    Parameters
    ----------
    merged
        Whether to look far back for what repeats: in a merged pack an object has many packets.
    """

    def __init__(self, merged: bool = False) -> None:
        self._compress = zstd.compress_repeats if merged else zstd.compress
        self._pages: list[Page] = []
        self._body: list[Bytes] = []
        self._held = self._size = 0
        self._object: str | None = None

    def add(self, object_id: str, pieces: Sequence[Bytes]) -> None:
        """Add a packet in pieces; nothing copies them before their page is made."""
        full = PAGE_BYTES if object_id != self._object else MOST_PAGE_BYTES
        if self._size >= full:
            self._end_page()
        length = sum(map(len, pieces))
        self._body += length.to_bytes(_PREFIX, "little"), *pieces
        self._held, self._size = self._held + 1, self._size + _PREFIX + length
        self._object = object_id

    def end(self) -> list[Page]:
        """All pages."""
        if self._held:
            self._end_page()
        return self._pages

    def _end_page(self) -> None:
        body = self._compress(b"".join(self._body))
        self._pages.append(Page(DATA_PAGE, [body], self._size, self._held))
        self._body, self._held, self._size = [], 0, 0


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
    rows = small_columns(rows)
    order = order_of(rows)
    made = PacketPages()
    objects = rows["object_id"].to_pylist()
    for number in order.tolist():
        made.add(objects[number], packets[number])
    return pack_of(rows.take(pa.array(order)), made.end(), coverage, programids)


def pack_of(
    rows: pa.Table,
    made: Sequence[Page],
    coverage: Coverage,
    programids: Iterable[int] = (),
    merged: Merged | None = None,
    inputs: Sequence[str] = (),
) -> Pack:
    """A pack of these rows, in order, and the pages that `PacketPages` made of their packets."""
    columns = [
        Column(field, made) if field.name == PACKET_PACKS.image else _column(field, rows)
        for field in PACKET_PACKS.rows.schema
    ]
    file = write(columns, rows.num_rows, footer_pairs(coverage, inputs))
    data = seal(file.data)
    return _pack(rows, data, sha256(data).hexdigest(), programids, merged)


def hashes_of(object_ids: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """The hash of each object: the CRC-32 of its id, as uint32 of shape (n,).

    Packs are sorted by it, so that merged ones can be divided evenly.
    """
    known: dict[str, int] = {}
    found = []
    for object_id in object_ids.to_pylist():
        if object_id not in known:
            known[object_id] = isal_zlib.crc32(object_id.encode())
        found.append(known[object_id])
    return np.array(found, np.uint32)


def order_of(rows: pa.Table) -> np.ndarray:
    """The numbers of rows in the order of a pack: by hash, object, time; equal ones as they are."""
    by_hash = rows.select(_ORDER).append_column("hash", pa.array(hashes_of(rows["object_id"])))
    keys = [(name, "ascending") for name in ("hash", *_ORDER)]
    order: np.ndarray = pc.sort_indices(by_hash, keys).to_numpy()
    return order


def _column(field: pa.Field, rows: pa.Table) -> Column:
    column = small(field, one_array(rows[field.name]))
    return column if field.name in _BOUNDED else column._replace(least=None, greatest=None)


def read_packets(data: bytes | memoryview | pa.Buffer, key: str) -> tuple[Pack, Coverage]:
    """A pack as `write_packets` returned it, from its bytes alone. Raises `Damaged`.

    No packet is decompressed: the digest in the key proves every byte.
    """
    rows, coverage, whole = read_small_columns(data, PACKET_PACKS.image, key)
    name = PackName.parse(key)
    merged = name.merged if name else None
    try:
        rows = small_columns(rows)
        return _pack(rows, pa.py_buffer(data), whole, programids_of(key), merged), coverage
    except PARQUET_ERRORS as error:
        raise Damaged(f"{key} does not have the rows of packets: {error}") from None


def row_pages(data: bytes | memoryview | pa.Buffer, key: str) -> Iterator[pa.Table]:
    """The rows of a pack with their packets, a page at a time. Raises `Damaged`."""
    rows = small_columns(read_small_columns(data, PACKET_PACKS.image, key)[0])
    view, begin = memoryview(data).cast("B"), 0
    field = PACKET_PACKS.rows.schema.field(PACKET_PACKS.image)
    for page in pages(pa.py_buffer(data), PACKET_PACKS.image):
        packets = values(view[page.offset :][: page.length])
        some = rows.slice(begin, len(packets))
        yield some.append_column(field, pa.array(packets, pa.binary()))
        begin += len(packets)


def with_columns(rows: pa.Table) -> pa.Table:
    """The rows of an earlier pack with nulls in the columns that came since."""
    for field in PACKET_PACKS.rows.schema:
        if field.nullable and field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows


def small_columns(rows: pa.Table) -> pa.Table:
    """The columns `SMALL` of rows, those that came later than the rows with nulls."""
    schema = PACKET_PACKS.rows.schema
    return with_columns(rows).select(SMALL).cast(pa.schema([schema.field(name) for name in SMALL]))


def _pack(
    rows: pa.Table, data: pa.Buffer, whole: str, programids: Iterable[int], merged: Merged | None
) -> Pack:
    """A pack of these rows, whose bytes have the SHA-256 `whole`."""
    mjd = rows["mjd"].to_numpy()
    night = int(np.floor(mjd.max())) if len(mjd) else 0
    key = PackName.make(PACKET_PACKS.prefix, night, whole, programids, merged).key
    found = pages(data, PACKET_PACKS.image)
    sizes = [page.values for page in found]
    if sum(sizes) != rows.num_rows:
        raise Damaged(f"{key} does not have its rows in its pages")
    level = pa.scalar(merged.level if merged else None, pa.int32())
    places = {
        "pack": pa.repeat(key, rows.num_rows),
        "offset": pa.array(np.repeat([page.offset for page in found], sizes), pa.int64()),
        "length": pa.array(np.repeat([page.length for page in found], sizes), pa.int32()),
        "row": pa.array([row for size in sizes for row in range(size)], pa.int32()),
        "merged": pa.repeat(level, rows.num_rows),
    }
    schema = PACKET_PACKS.locations.schema
    columns = [places[name] if name in places else rows[name] for name in schema.names]
    locations = pa.table(columns, schema.names).cast(schema)
    # A message that was sent twice has one location, as it will have in the table.
    return Pack(key, data, sort_unique(locations, PACKET_PACKS.locations), whole)
