"""Parquet footers in pieces: what a run says of itself, and one row group's description at a time.

The footer of 4 M rows is 2 MB, and parsed it takes 29 MB of memory: a table of a billion rows
would need gigabytes to be looked up in. But it is a Thrift structure in the compact protocol, the
row groups' descriptions in a list of their own and what the run says of itself behind them. A
footer that holds one description, or none, is made by leaving out the others, and Arrow reads it.

Thrift: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_LIST = b"\x19"  # a field that is a list, the next after the one before
_END = b"\0"  # of a structure
# What a run says of itself begins with the key `stampede.level`. In the values control characters
# are escaped, so that this is found nowhere else.
_SAID = b"\x18\x0estampede.level"
# Descriptions compressed together: 16 take 2.5 KB, and 14 to 50 microseconds to be had again.
_TOGETHER = 16


def metadata_of(footer: bytes) -> pq.FileMetaData:
    """A footer parsed. Raises `pa.ArrowException` or `OSError`."""
    end = len(footer).to_bytes(4, "little") + b"PAR1"
    return pq.read_metadata(pa.BufferReader(b"".join((footer, end))))


def said(tail: bytes, schema: pa.Schema) -> pq.FileMetaData | None:
    """What a run says of itself, without its row groups, from the last bytes of its footer.

    None where these are too few.
    """
    at = tail.rfind(_SAID) - 2  # the list's own two bytes
    return metadata_of(_empty(schema) + tail[at:]) if at >= 0 else None


class Descriptions:
    """The descriptions of row groups, compressed: 80 B each, a hundredth of what they are parsed.

    Parameters
    ----------
    footer
        Of one part of a run.
    metadata
        The same, parsed.
    """

    def __init__(self, footer: bytes, metadata: pq.FileMetaData) -> None:
        count = metadata.num_row_groups
        begins = _begins(footer, metadata)
        self._whole = None if len(begins) == count else metadata
        self._blocks: list[_Block] = []
        header = _LIST + _list_of(count)
        if self._whole or not count:
            return
        if not footer.endswith(header, 0, begins[0]):  # written by something else
            self._whole = metadata
            return
        self._head = footer[: begins[0] - len(header)] + _LIST + _list_of(1)
        ends = [*begins[1:], len(footer)]  # behind the last lies what the run says of itself
        for first in range(0, count, _TOGETHER):
            start, end = begins[first], ends[min(first + _TOGETHER, count) - 1]
            bounds = np.array([*begins[first : first + _TOGETHER], end]) - start
            packed = pa.compress(footer[start:end], "zstd", asbytes=True)
            self._blocks.append(_Block(packed, bounds.astype(np.int32)))

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        if self._whole:
            return 14 * self._whole.serialized_size  # measured
        return sum(len(block.packed) + block.bounds.nbytes + 200 for block in self._blocks)

    def of(self, group: int) -> tuple[pq.FileMetaData, int]:
        """Metadata of a file, and the number in it that the row group has there."""
        if self._whole:
            return self._whole, group
        block = self._blocks[group // _TOGETHER]
        start, end = block.bounds[group % _TOGETHER :][:2].tolist()
        pieces = pa.decompress(block.packed, int(block.bounds[-1]), "zstd", asbytes=True)
        return metadata_of(self._head + pieces[start:end] + _END), 0


class _Block(NamedTuple):
    packed: bytes
    bounds: np.ndarray


def _begins(footer: bytes, metadata: pq.FileMetaData) -> list[int]:
    """Where each row group's description begins, found by how its first column's does."""
    name = metadata.schema.names[0].encode() if metadata.num_columns else b""
    first = re.compile(
        _LIST
        + re.escape(_list_of(metadata.num_columns))
        + rb"\x26[\x80-\xff]*[\0-\x7f]\x1c"  # offset of the file, the column's own structure:
        rb"\x15.\x19.{1,8}?\x19\x18"  # type, encodings, path
         + re.escape(_varint(len(name)) + name),
        re.DOTALL,
    )
    return [found.start() for found in first.finditer(footer)]


def _list_of(count: int) -> bytes:
    """How a list of so many structures begins."""
    return bytes([count << 4 | 0xC]) if count < 15 else b"\xfc" + _varint(count)


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


@lru_cache
def _empty(schema: pa.Schema) -> bytes:
    """The footer of a file without rows, as far as the list of its row groups, which is empty."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema.remove_metadata(), version="2.6", store_schema=False).close()
    data = sink.getvalue().to_pybytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    none = _LIST + _list_of(0)
    return footer[: footer.rindex(none) + len(none)]
