"""Parquet footers in pieces: a run's metadata, and one row group's description at a time.

The footer of 4 M rows is 2 MB and takes 29 MB of memory when parsed, so lookups in a table of a
billion rows would need gigabytes. But a footer is a Thrift structure in the compact protocol: a
list of the row groups' descriptions, then the run's metadata. Leaving out all descriptions but
one, or all, makes a smaller footer, which Arrow reads.

Thrift: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stampede.store.checked_parquet import end_of_footer
from stampede.store.thrift import varint

_LIST = b"\x19"  # a field of type list, whose number is one above that of the field before it
_END = b"\0"  # of a structure
# Descriptions compressed together: 16 take 2.5 KB, and 14 to 50 microseconds to decompress.
_TOGETHER = 16


def metadata_of(footer: bytes) -> pq.FileMetaData:
    """A footer parsed. Raises `pa.ArrowException` or `OSError`."""
    end = len(footer).to_bytes(4, "little") + b"PAR1"
    return pq.read_metadata(pa.BufferReader(b"".join((footer, end))))


def run_metadata(key: str, tail: bytes, schema: pa.Schema) -> pq.FileMetaData | None:
    """A run's metadata without its row groups, from the last bytes of its footer.

    None if `tail` is too short, or if the run does not have the columns of `schema`. Raises
    `Damaged` if the checksum of these bytes is wrong.
    """
    end = end_of_footer(key, tail)
    start = len(tail) - len(end) if end is not None else 0
    if start < 2:
        return None
    try:
        return metadata_of(_empty(schema) + tail[start - 2 :])  # the list's own two bytes too
    except (pa.ArrowException, OSError):
        return None  # the columns are counted once more behind the metadata


class Descriptions:
    """The descriptions of row groups, compressed: 80 B each, a hundredth of their parsed size.

    Parameters
    ----------
    footer
        The footer of one part of a run.
    metadata
        The same footer, parsed.
    """

    def __init__(self, footer: bytes, metadata: pq.FileMetaData) -> None:
        count = metadata.num_row_groups
        starts = _description_starts(footer, metadata)
        self._parsed: pq.FileMetaData | None = None  # if the footer cannot be taken apart
        self._blocks: list[_Block] = []
        if len(starts) != count:
            self._parsed = metadata
            return
        if not count:
            return
        header = _LIST + _list_of(count)
        if not footer.endswith(header, 0, starts[0]):  # written by another program
            self._parsed = metadata
            return
        self._head = footer[: starts[0] - len(header)] + _LIST + _list_of(1)
        ends = [*starts[1:], len(footer)]  # the run's metadata follows the last description
        for first in range(0, count, _TOGETHER):
            start, end = starts[first], ends[min(first + _TOGETHER, count) - 1]
            bounds = np.array([*starts[first : first + _TOGETHER], end]) - start
            packed = pa.compress(footer[start:end], "zstd", asbytes=True)
            self._blocks.append(_Block(packed, bounds.astype(np.int32)))

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        if self._parsed:
            return 14 * self._parsed.serialized_size  # measured
        return sum(len(block.packed) + block.bounds.nbytes + 200 for block in self._blocks)

    def of(self, group: int) -> tuple[pq.FileMetaData, int]:
        """File metadata that describes a row group, and the group's number in that metadata."""
        if self._parsed:
            return self._parsed, group
        block = self._blocks[group // _TOGETHER]
        start, end = block.bounds[group % _TOGETHER :][:2].tolist()
        pieces = pa.decompress(block.packed, int(block.bounds[-1]), "zstd", asbytes=True)
        return metadata_of(self._head + pieces[start:end] + _END), 0


class _Block(NamedTuple):
    packed: bytes
    bounds: np.ndarray


def _description_starts(footer: bytes, metadata: pq.FileMetaData) -> list[int]:
    """Where each row group's description starts, found by how its first column starts."""
    name = metadata.schema.names[0].encode() if metadata.num_columns else b""
    first = re.compile(
        _LIST
        + re.escape(_list_of(metadata.num_columns))
        + rb"\x26[\x80-\xff]*[\0-\x7f]\x1c"  # offset in the file, then the column's structure:
        rb"\x15.\x19.{1,8}?\x19\x18"  # type, encodings, path
         + re.escape(varint(len(name)) + name),
        re.DOTALL,
    )
    return [found.start() for found in first.finditer(footer)]


def _list_of(count: int) -> bytes:
    """How a list of `count` structures begins."""
    return bytes([count << 4 | 0xC]) if count < 15 else b"\xfc" + varint(count)


@lru_cache
def _empty(schema: pa.Schema) -> bytes:
    """The footer of a file without rows, up to its empty list of row groups."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema.remove_metadata(), version="2.6", store_schema=False).close()
    data = sink.getvalue().to_pybytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    no_groups = _LIST + _list_of(0)
    return footer[: footer.rindex(no_groups) + len(no_groups)]
