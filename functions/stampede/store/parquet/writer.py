"""Writes a Parquet file whose pages lie where a reader of single images needs them.

Arrow's writer cuts all columns into pages alike and compresses a dictionary as one. Here each
column has its own pages, each page is compressed on its own, and a dictionary page may be a row of
Zstandard frames, one for each entry. Any Parquet reader takes such a file.

https://parquet.apache.org/docs/file-format/ describes pages and footer.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from stampede.runtime.decompression import Bytes
from stampede.runtime.leb128 import leb128
from stampede.store.parquet import zstd
from stampede.store.parquet.thrift import (
    Value,
    binary,
    boolean,
    first_i32s,
    i8,
    i32,
    i64,
    items,
    struct,
)

MAGIC = b"PAR1"
LONGEST_STATISTIC = 1024  # bytes: a footer is read far more often than its file
DATA_PAGE, DICTIONARY_PAGE = 0, 2
_PLAIN, _RLE, _DICTIONARY = 0, 3, 8
_NONE, _ZSTD = 0, 6
_INT32, _INT64, _DOUBLE, _BYTE_ARRAY, _FIXED = 1, 2, 5, 6, 7
_REQUIRED, _OPTIONAL = 0, 1
_CREATED_BY = "stampede version 1.0.0"


class Page(NamedTuple):
    """One page: its type, the body as stored, the size of the body decompressed, its values.

    The body is in pieces, which nothing copies before the file is put together.
    """

    kind: int
    body: Sequence[Bytes]
    size: int
    values: int
    encoding: int = _PLAIN


class Column(NamedTuple):
    """A column chunk: its field, its pages, and the least and greatest value if known."""

    field: pa.Field
    pages: Sequence[Page]
    compressed: bool = True
    least: bytes | None = None
    greatest: bytes | None = None
    nulls: int = 0


class Range(NamedTuple):
    """A range of bytes of a file."""

    offset: int
    length: int


class Written(NamedTuple):
    """A file, and for each column where the bodies of its pages lie."""

    data: pa.Buffer
    bodies: list[list[Range]]


def levels(valid: Sequence[bool] | np.ndarray, field: pa.Field) -> bytes:
    """The definition levels at the beginning of a data page: which values are not null."""
    return _levels(bytes(valid)) if field.nullable else b""


@lru_cache
def _levels(valid: bytes) -> bytes:
    """The same, from a byte for each value: in a pack most pages have three values, not null."""
    bits = np.packbits(np.frombuffer(valid, np.uint8), bitorder="little").tobytes()
    packed = leb128(len(bits) << 1 | 1) + bits
    return len(packed).to_bytes(4, "little") + packed


def plain(values: Iterable[Bytes]) -> list[Bytes]:
    """Binary values as they lie in a page: each after its length."""
    return [part for value in values for part in (len(value).to_bytes(4, "little"), value)]


def numbers(field: pa.Field, array: pa.Array) -> Column:
    """A column of numbers or timestamps, in one page."""
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    known = array.drop_null().to_numpy()
    body = levels(valid, field) + known.tobytes()
    least = greatest = None
    if len(known) and not (known.dtype.kind == "f" and np.isnan(known).any()):
        least, greatest = known.min().tobytes(), known.max().tobytes()
    page = Page(DATA_PAGE, [zstd.compress(body)], len(body), len(array))
    return Column(field, [page], True, least, greatest, array.null_count)


def strings(field: pa.Field, array: pa.Array) -> Column:
    """A column of strings that repeat: a dictionary, compressed as one."""
    encoded = array.dictionary_encode()
    entries = [value.encode() for value in encoded.dictionary.to_pylist()]
    whole = b"".join(plain(entries))
    dictionary = Page(DICTIONARY_PAGE, [zstd.compress(whole)], len(whole), len(entries))
    least = greatest = None
    if entries and max(map(len, entries)) <= LONGEST_STATISTIC:
        least, greatest = min(entries), max(entries)
    pages = [dictionary, indices(field, encoded.indices)]
    return Column(field, pages, True, least, greatest, array.null_count)


def fixed(field: pa.Field, array: pa.Array) -> Column:
    """A column of binary values of one length, in one page."""
    known = array.drop_null()
    width = field.type.byte_width
    values = known.buffers()[1][known.offset * width :][: len(known) * width] if len(known) else b""
    body = levels(array.is_valid().to_numpy(zero_copy_only=False), field) + bytes(values)
    page = Page(DATA_PAGE, [zstd.compress(body)], len(body), len(array))
    return Column(field, [page], nulls=array.null_count)


def small(field: pa.Field, array: pa.Array) -> Column:
    """A column of strings, numbers, timestamps or binary values of one length."""
    if pa.types.is_string(field.type):
        return strings(field, array)
    return (fixed if pa.types.is_fixed_size_binary(field.type) else numbers)(field, array)


def indices(field: pa.Field, numbers: pa.Array) -> Page:
    """A data page that points into the column's dictionary; null where a number is."""
    known = numbers.drop_null().to_numpy().astype(np.int64)
    width = max(1, int(known.max(initial=0)).bit_length())
    padded = np.zeros(-(-len(known) // 8) * 8, np.int64)
    padded[: len(known)] = known
    bits = (padded[:, None] >> np.arange(width) & 1).astype(np.uint8)
    packed = np.packbits(bits, bitorder="little").tobytes()
    valid = numbers.is_valid().to_numpy(zero_copy_only=False)
    head = levels(valid, field) + bytes([width])
    body = head + (leb128(len(padded) // 8 << 1 | 1) + packed if len(known) else b"")
    return Page(DATA_PAGE, [zstd.compress(body)], len(body), len(numbers), _DICTIONARY)


def write(columns: Sequence[Column], rows: int, metadata: Mapping[str, str]) -> Written:
    """A file of one row group, or of none if there are no rows. Its bytes can be changed."""
    pieces: list[Bytes] = [MAGIC]
    at, total = len(MAGIC), 0
    bodies: list[list[Range]] = []
    chunks: list[Value] = []
    for column in columns if rows else ():
        start, size = at, 0
        offsets: dict[int, int] = {}
        places: list[Range] = []
        for page in column.pages:
            length = sum(map(len, page.body))
            head = _page_header(page, length)
            offsets.setdefault(page.kind, at)
            places.append(Range(at + len(head), length))
            pieces += head, *page.body
            at += len(head) + length
            size += len(head) + page.size
        bodies.append(places)
        chunks.append(_chunk(column, rows, size, at - start, offsets))
        total += size
    footer = _footer(columns, chunks, rows, total, at - len(MAGIC), metadata)
    pieces += footer, len(footer).to_bytes(4, "little"), MAGIC
    return Written(pa.py_buffer(bytearray().join(pieces)), bodies)


def _page_header(page: Page, length: int) -> bytes:
    """The header of a page whose body has `length` bytes."""
    crc = 0
    for piece in page.body:
        crc = isal_zlib.crc32(piece, crc)
    crc -= crc >> 31 << 32  # the field is signed
    first = first_i32s(page.kind, page.size, length, crc)
    return first + _described(page.kind, page.values, page.encoding)


@lru_cache
def _described(kind: int, values: int, encoding: int) -> bytes:
    """The rest of a page's header, behind four fields, which most pages of a column share."""
    if kind == DICTIONARY_PAGE:
        return struct({7: struct({1: i32(values), 2: i32(_PLAIN)})}, 4).data
    described = struct({1: i32(values), 2: i32(encoding), 3: i32(_RLE), 4: i32(_RLE)})
    return struct({5: described}, 4).data


def _chunk(column: Column, rows: int, size: int, stored: int, offsets: Mapping[int, int]) -> Value:
    in_dictionary = DICTIONARY_PAGE in offsets
    encodings = [_PLAIN, _RLE, _DICTIONARY] if in_dictionary else [_PLAIN, _RLE]
    fields = {
        1: i32(_kind(column.field)),
        2: items(map(i32, encodings)),
        3: items([binary(column.field.name)]),
        4: i32(_ZSTD if column.compressed else _NONE),
        5: i64(rows),
        6: i64(size),
        7: i64(stored),
        9: i64(offsets[DATA_PAGE]),
    }
    if in_dictionary:
        fields[11] = i64(offsets[DICTIONARY_PAGE])
    statistics = {3: i64(column.nulls)}
    if column.least is not None and column.greatest is not None:
        statistics |= {5: binary(column.greatest), 6: binary(column.least)}
    fields[12] = struct(statistics)
    return struct({2: i64(0), 3: struct(fields)})


def _footer(
    columns: Sequence[Column],
    chunks: Sequence[Value],
    rows: int,
    size: int,
    stored: int,
    metadata: Mapping[str, str],
) -> bytes:
    root = struct({4: binary("schema"), 5: i32(len(columns))})
    group = {1: items(chunks), 2: i64(size), 3: i64(rows), 5: i64(len(MAGIC)), 6: i64(stored)}
    pairs = [struct({1: binary(name), 2: binary(value)}) for name, value in metadata.items()]
    return struct(
        {
            1: i32(2),
            2: items([root, *(_element(column.field) for column in columns)]),
            3: i64(rows),
            4: items([struct(group)] if rows else []),
            5: items(pairs),
            6: binary(_CREATED_BY),
            7: items(struct({1: struct({})}) for _ in columns),  # statistics in the types' order
        }
    ).data


def _element(field: pa.Field) -> Value:
    fields = {
        1: i32(_kind(field)),
        3: i32(_OPTIONAL if field.nullable else _REQUIRED),
        4: binary(field.name),
    }
    if pa.types.is_fixed_size_binary(field.type):
        fields = {1: fields[1], 2: i32(field.type.byte_width), 3: fields[3], 4: fields[4]}
    # What the numbers or bytes mean, by both of its names.
    if pa.types.is_string(field.type):
        fields |= {6: i32(0), 10: struct({1: struct({})})}
    elif field.type == pa.uint32():
        fields |= {6: i32(13), 10: struct({10: struct({1: i8(32), 2: boolean(False)})})}
    elif field.type == pa.timestamp("ms", "UTC"):
        milliseconds = struct({1: struct({})})
        fields |= {6: i32(9), 10: struct({8: struct({1: boolean(True), 2: milliseconds})})}
    return struct(fields)


def _kind(field: pa.Field) -> int:
    if pa.types.is_floating(field.type):
        return _DOUBLE
    if pa.types.is_primitive(field.type):
        return _INT32 if field.type.bit_width == 32 else _INT64
    return _FIXED if pa.types.is_fixed_size_binary(field.type) else _BYTE_ARRAY
