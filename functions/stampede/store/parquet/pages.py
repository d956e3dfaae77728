"""Pages of a Parquet column: where they lie in the file, and the values in the bytes of one.

For a required BYTE_ARRAY column, PLAIN and compressed with ZSTD: so one ranged GET of a page gives
all its values, and nothing else of the file is needed. A page begins with its header, a Thrift
structure in the compact protocol (parquet.thrift, PageHeader).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from isal import isal_zlib

from stampede.errors import Damaged
from stampede.store.parquet import zstd
from stampede.store.parquet.checksums import metadata_of
from stampede.store.parquet.thrift import read_struct

_UNPACKED, _PACKED, _CRC, _DATA_PAGE = 2, 3, 4, 5  # numbers of the fields of a PageHeader
MOST_BYTES = 256 << 20  # of a page, unpacked: an alert may have 16 MB, and a page one more


class Page(NamedTuple):
    """Where a page lies in its file, with its header, and how many values it has."""

    offset: int
    length: int
    values: int


def pages(data: pa.Buffer, column: str) -> list[Page]:
    """The pages of a column of a whole file that is verified, in order. Raises `Damaged`."""
    view = memoryview(data).cast("B")
    metadata = metadata_of(bytes(view[-8 - int.from_bytes(view[-8:-4], "little") : -8]))
    number = metadata.schema.to_arrow_schema().get_field_index(column)
    found = []
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(number)
        at = chunk.data_page_offset
        end = at + chunk.total_compressed_size
        while at < end:
            header, body = _header(view[at:end])
            length = body + header[_PACKED]
            found.append(Page(at, length, header[_DATA_PAGE]))
            at += length
    return found


HEADER_BYTES = 128
"""More than the header of a page has."""


def length_of(data: memoryview) -> int:
    """How many bytes the page has that begins here, header and all. Raises `Damaged`.

    `data` are `HEADER_BYTES` of the file, fewer at its end.
    """
    header, body = _header(data)
    return body + int(header[_PACKED])


def values(page: bytes | memoryview) -> list[memoryview]:
    """The values in the bytes of one page. Raises `Damaged`."""
    header, body = _header(memoryview(page))
    packed = page[body:]
    if len(packed) != header[_PACKED] or header.get(_CRC) != _signed(isal_zlib.crc32(packed)):
        raise Damaged("the page does not have its checksum")
    if not 0 <= header[_UNPACKED] <= MOST_BYTES:
        raise Damaged(f"the page would unpack to {header[_UNPACKED]:,} bytes")
    try:
        unpacked = zstd.decompress(packed, header[_UNPACKED])
        return list(_split(memoryview(unpacked), header[_DATA_PAGE]))
    except ValueError as error:
        raise Damaged(f"the page cannot be unpacked: {error}") from None


def _split(data: memoryview, count: int) -> Iterator[memoryview]:
    """The values of a page in the encoding PLAIN: each after its length in 4 bytes."""
    at = 0
    for _ in range(count):
        begin = at + 4
        at = begin + int.from_bytes(data[begin - 4 : begin], "little")
        if at > len(data):
            raise ValueError("its values are cut off")
        yield data[begin:at]
    if at != len(data):
        raise ValueError("bytes follow its values")


def _signed(number: int) -> int:
    """32 bits as Thrift's i32."""
    return number - (1 << 32) if number >> 31 else number


def _header(data: memoryview) -> tuple[dict[int, Any], int]:
    """The numbers in a page's header, and where it ends; `_DATA_PAGE` is the number of values.

    Raises `Damaged`.
    """
    try:
        fields, end = read_struct(data, 0)
        values_of_page = fields[_DATA_PAGE]
        if not isinstance(values_of_page, dict):
            raise ValueError("not the header of a page of data")
        found = {
            _UNPACKED: fields[_UNPACKED],
            _PACKED: fields[_PACKED],
            _DATA_PAGE: values_of_page[1],
        }
    except (LookupError, ValueError):
        raise Damaged("no page of data begins here") from None
    if not all(type(number) is int for number in found.values()):
        raise Damaged("no page of data begins here")
    if found[_PACKED] < 0 or found[_DATA_PAGE] < 0:
        raise Damaged("the page's header is damaged")
    return found | ({_CRC: fields[_CRC]} if _CRC in fields else {}), end
