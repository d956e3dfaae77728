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

from stampede.runtime.decompression import unzstd
from stampede.runtime.leb128 import leb128
from stampede.store.parquet.checksums import (
    FileMetaData,
    end_of_footer,
    metadata_of,
    new_file,
    start_of_pairs,
)

_LIST = b"\x19"  # a field of type list, whose number is one above that of the field before it
_END = b"\0"  # of a structure
# Descriptions compressed together: 16 take 2.5 KB, and 14 to 50 microseconds to decompress.
_TOGETHER = 16


def run_metadata(key: str, tail: bytes, schema: pa.Schema) -> FileMetaData | None:
    """A run's metadata without its row groups, from the last bytes of its footer.

    None if `tail` is too short, or if the run does not have the columns of `schema`. Raises
    `Damaged` if the checksum of these bytes is wrong.
    """
    end = end_of_footer(key, tail)
    start = len(tail) - len(end) if end is not None else 0
    if start < 2:
        return None
    try:
        return metadata_of(_empty(schema)[0] + tail[start - 2 :])  # the list's own two bytes too
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

    def __init__(self, footer: bytes, metadata: FileMetaData) -> None:
        self._parsed: FileMetaData | None = None  # if the footer cannot be taken apart
        self._blocks: list[_Block] = []
        taken = _take_apart(footer, metadata)
        if taken is None:
            self._parsed = metadata
            return
        self._head = taken.head + _LIST + _list_of(1)
        starts = taken.starts
        for first in range(0, metadata.num_row_groups, _TOGETHER):
            end = starts[min(first + _TOGETHER, metadata.num_row_groups)]
            start, bounds = starts[first], np.array([*starts[first : first + _TOGETHER], end])
            bounds -= start
            packed = pa.compress(footer[start:end], "zstd", asbytes=True)
            self._blocks.append(_Block(packed, bounds.astype(np.int32)))

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        if self._parsed:
            return 14 * int(self._parsed.serialized_size)  # measured
        return sum(len(block.packed) + block.bounds.nbytes + 200 for block in self._blocks)

    def of(self, group: int) -> tuple[FileMetaData, int]:
        """File metadata that describes a row group, and the group's number in that metadata."""
        if self._parsed:
            return self._parsed, group
        block = self._blocks[group // _TOGETHER]
        start, end = block.bounds[group % _TOGETHER :][:2].tolist()
        pieces = unzstd(block.packed, int(block.bounds[-1]))
        return metadata_of(self._head + pieces[start:end] + _END), 0


def partial_footers(footer: bytes, schema: pa.Schema, together: int) -> list[bytes]:
    """For every `together` row groups a footer with the descriptions of these alone.

    It is without the run's metadata, and its number of rows is that of the whole part. Empty if the
    footer cannot be taken apart.
    """
    metadata = metadata_of(footer)
    taken, end_of_groups = _take_apart(footer, metadata), start_of_pairs(footer)
    if taken is None or end_of_groups is None:
        return []
    starts = [*taken.starts[:-1], end_of_groups]
    found = []
    for first in range(0, metadata.num_row_groups, together):
        end = min(first + together, metadata.num_row_groups)
        groups = footer[starts[first] : starts[end]]
        found.append(taken.head + _LIST + _list_of(end - first) + groups + _empty(schema)[1])
    return found


class _Pieces(NamedTuple):
    head: bytes  # up to the list of row groups
    starts: list[int]  # of their descriptions, and of what follows the last one


def _take_apart(footer: bytes, metadata: FileMetaData) -> _Pieces | None:
    """Where the pieces of a footer are; None if another program wrote it."""
    starts, count = _description_starts(footer, metadata), metadata.num_row_groups
    if len(starts) != count:
        return None
    if not count:
        return _Pieces(b"", [len(footer)])
    header = _LIST + _list_of(count)
    if not footer.endswith(header, 0, starts[0]):
        return None
    return _Pieces(footer[: starts[0] - len(header)], [*starts, len(footer)])


class _Block(NamedTuple):
    packed: bytes
    bounds: np.ndarray


def _description_starts(footer: bytes, metadata: FileMetaData) -> list[int]:
    """Where each row group's description starts, found by how its first column starts."""
    name = metadata.schema.names[0].encode() if metadata.num_columns else b""
    first = re.compile(
        _LIST
        + re.escape(_list_of(metadata.num_columns))
        + rb"\x26[\x80-\xff]*[\0-\x7f]\x1c"  # offset in the file, then the column's structure:
        rb"\x15.\x19.{1,8}?\x19\x18"  # type, encodings, path
         + re.escape(leb128(len(name)) + name),
        re.DOTALL,
    )
    return [found.start() for found in first.finditer(footer)]


def _list_of(count: int) -> bytes:
    """How a list of `count` structures begins."""
    return bytes([count << 4 | 0xC]) if count < 15 else b"\xfc" + leb128(count)


@lru_cache
def _empty(schema: pa.Schema) -> tuple[bytes, bytes]:
    """The footer of a file without rows: up to its empty list of row groups, and the rest."""
    sink = pa.BufferOutputStream()
    new_file(sink, schema.remove_metadata(), version="2.6", store_schema=False).close()
    data = sink.getvalue().to_pybytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    no_groups = _LIST + _list_of(0)
    end = footer.rindex(no_groups) + len(no_groups)
    return footer[:end], footer[end:]
