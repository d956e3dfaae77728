"""Parquet files, verified before they are believed: the only module that opens them.

`docs/store.md` says what there is to compare: the CRC-32 of a footer, which Parquet itself does not
guard, and the format of the object in it, the CRC-32 of each page, and the name. A run of level 0
has the digest of its bytes as its name. A merged run is held to its name by its footer
(`stampede_client.runs`), and its row groups to the places that its footer gives them.
"""

from collections.abc import Sequence
from io import BytesIO
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from isal import isal_zlib

FORMAT = 2
"""The latest format of objects that this version reads."""
MAGIC = b"PAR1"
_PAIR = b"\x18\x0estampede.crc32\x18\x10"  # how the pair of the checksum begins, in Thrift
_SIZE = len(_PAIR) + 16
PARQUET_ERRORS = (pa.ArrowException, OSError, ValueError, LookupError, TypeError)
"""What pyarrow raises for bytes that are not the Parquet they should be."""


class Unverified(Exception):
    """Bytes are not what was stored."""


class Footer(NamedTuple):
    """A verified footer, and its bytes in the file: they end 8 bytes before the file does."""

    metadata: pq.FileMetaData
    length: int

    @property
    def pairs(self) -> dict[bytes, bytes]:
        """What Stampede says of the file."""
        return dict(self.metadata.metadata or {})

    @property
    def schema(self) -> pa.Schema:
        """The columns, without metadata."""
        return self.metadata.schema.to_arrow_schema().remove_metadata()


class Group(NamedTuple):
    """A row group: its number, its rows, and its least and greatest leading key if known."""

    number: int
    rows: int
    first: int | str | None
    last: int | str | None


def footer_length(tail: bytes, size: int) -> int:
    """The length of a footer, from the last bytes of a file of `size` bytes.

    Raises `Unverified`.
    """
    length = int.from_bytes(tail[-8:-4], "little")
    if len(tail) < 8 or tail[-4:] != MAGIC or length + 8 + len(MAGIC) > size:
        raise Unverified("it is cut short, or is not Parquet")
    return length


def parse_footer(footer: bytes) -> Footer:
    """A footer of the store. Raises `Unverified`."""
    pair = footer.rfind(_PAIR)
    before, after = (
        isal_zlib.crc32(part) for part in (footer[: max(pair, 0)], footer[pair + _SIZE :])
    )
    if pair < 0 or footer[pair + len(_PAIR) : pair + _SIZE] != b"%08x%08x" % (before, after):
        raise Unverified("its footer does not have its checksum")
    end = len(footer).to_bytes(4, "little") + MAGIC
    try:
        found = Footer(pq.read_metadata(pa.BufferReader(footer + end)), len(footer))
    except PARQUET_ERRORS as error:
        raise Unverified(f"its footer cannot be read: {error}") from None
    number = found.pairs.get(b"stampede.format", b"")
    if not number.isdigit():
        raise Unverified("its footer does not say of which format it is")
    if int(number) > FORMAT:
        raise Unverified(
            f"it has format {int(number)}: update stampede-client, which reads up to {FORMAT}"
        )
    return found


def groups_of(footer: Footer, size: int, between: int) -> list[Group]:
    """The row groups of a file, which lie side by side from its first bytes on.

    Parameters
    ----------
    size
        Of the file, in bytes.
    between
        Bytes between the last row group and the footer.

    Raises `Unverified` if the footer is that of another file.
    """
    metadata, groups, starts, ends = footer.metadata, [], [], [len(MAGIC)]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        head, tail = group.column(0), group.column(metadata.num_columns - 1)
        starts.append(_start(head))
        ends.append(_start(tail) + tail.total_compressed_size)
        known = head.statistics if head.is_stats_set and head.statistics.has_min_max else None
        first, last = (known.min, known.max) if known else (None, None)
        groups.append(Group(number, group.num_rows, first, last))
    if not np.array_equal([*starts, size - 8 - footer.length - between], ends):
        raise Unverified("it is cut short, or its footer is that of another file")
    return groups


def read_groups(
    source: pa.NativeFile, footer: Footer, groups: Sequence[Group], columns: Sequence[str]
) -> pa.Table:
    """The rows of row groups, their pages verified.

    Raises `Unverified`, and `OSError` too if `source` is no memory.
    """
    numbers = [group.number for group in groups]
    try:
        file = pq.ParquetFile(
            source, metadata=footer.metadata, pre_buffer=True, page_checksum_verification=True
        )
        rows = file.read_row_groups(numbers, columns=list(columns), use_threads=False)
    except PARQUET_ERRORS as error:
        raise Unverified(f"it is damaged: {error}") from error
    if rows.num_rows != sum(group.rows for group in groups):
        raise Unverified("it does not have the rows that its footer says")
    return rows


def read_whole(data: bytes) -> tuple[pa.Table, dict[bytes, bytes]]:
    """All rows of a file of the store, and its pairs. Raises `Unverified`."""
    length = footer_length(data, len(data))
    footer = parse_footer(data[-8 - length : -8])
    names = footer.schema.names
    groups = [
        Group(number, footer.metadata.row_group(number).num_rows, None, None)
        for number in range(footer.metadata.num_row_groups)
    ]
    return read_groups(pa.BufferReader(data), footer, groups, names), footer.pairs


def read_answer(body: bytes) -> tuple[pa.Table, dict[bytes, bytes]]:
    """The rows of a server's response, and the pairs in its footer. Raises what pyarrow raises."""
    file = pq.ParquetFile(BytesIO(body))
    return file.read(), dict(file.metadata.metadata or {})


def _start(column: pq.ColumnChunkMetaData) -> int:
    start: int = column.dictionary_page_offset or column.data_page_offset
    return start
