"""Thrift's compact protocol, as far as Parquet needs it: page headers and footers.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from stampede.runtime.leb128 import leb128

_TRUE, _FALSE = 1, 2
_I8, _I32, _I64, _BINARY, _LIST, _STRUCT = 3, 5, 6, 8, 9, 12
_NEXT_I32 = bytes([1 << 4 | _I32])  # the head of such a field behind the one of the number before
_DEEPEST = 8  # structures within structures; Parquet's footer has 6


class Value(NamedTuple):
    """A value in the protocol: the number of its type, and its bytes."""

    kind: int
    data: bytes


def boolean(value: bool) -> Value:
    """A boolean as a field of a structure: its type is its value."""
    return Value(_TRUE if value else _FALSE, b"")


def i8(number: int) -> Value:
    """A number of 8 bits."""
    return Value(_I8, number.to_bytes(1, signed=True))


def i32(number: int) -> Value:
    """A number of 32 bits."""
    return Value(_I32, leb128(number << 1 ^ number >> 31))


def i64(number: int) -> Value:
    """A number of 64 bits."""
    return Value(_I64, leb128(number << 1 ^ number >> 63))


def binary(data: bytes | str) -> Value:
    """Bytes, or a string."""
    data = data.encode() if isinstance(data, str) else data
    return Value(_BINARY, leb128(len(data)) + data)


def items(values: Iterable[Value], kind: int = _STRUCT) -> Value:
    """A list of values of one type; `kind` is that of an empty list."""
    values = list(values)
    kind, count = values[0].kind if values else kind, len(values)
    head = bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + leb128(count)
    return Value(_LIST, head + b"".join(value.data for value in values))


def first_i32s(*numbers: int) -> bytes:
    """The first fields of a structure, numbered from 1 on and of 32 bits each.

    `struct` takes twice as long, and each page of a pack begins with some.
    """
    return b"".join([_NEXT_I32 + leb128(number << 1 ^ number >> 31) for number in numbers])


def struct(fields: Mapping[int, Value], last: int = 0) -> Value:
    """A structure: its fields by number, ascending; only those after number `last`."""
    data = bytearray()
    for number, value in fields.items():
        data.append((number - last) << 4 | value.kind)
        data += value.data
        last = number
    return Value(_STRUCT, bytes(data) + b"\0")


def read_struct(data: bytes | memoryview, at: int, deep: int = 0) -> tuple[dict[int, Any], int]:
    """The fields of the structure that begins at byte `at`, by number, and where it ends.

    Raises `ValueError` or `IndexError` for bytes that are no structure of numbers, booleans, bytes
    and structures.
    """
    if deep > _DEEPEST:
        raise ValueError("structures are nested too deeply")
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 0x0F
        if not head >> 4:
            raise ValueError("a field without the distance to the one before")
        number += head >> 4
        if kind in (_TRUE, _FALSE):
            fields[number] = kind == _TRUE
        elif kind in (_I32, _I64):
            raw, at = _read_varint(data, at)
            fields[number] = raw >> 1 ^ -(raw & 1)
        elif kind == _BINARY:
            size, at = _read_varint(data, at)
            fields[number], at = bytes(data[at : at + size]), at + size
        elif kind == _STRUCT:
            fields[number], at = read_struct(data, at, deep + 1)
        else:
            raise ValueError(f"a field of type {kind}")
    return fields, at + 1


def _read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while (octet := data[at]) & 0x80:
        number |= (octet & 0x7F) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
    return number | octet << shift, at + 1
