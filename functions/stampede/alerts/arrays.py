"""Vectorised helpers for the surveys' modules."""

import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from stampede import compute as pc
from stampede.alerts.container import Bytes

# How Arrow describes a value of type binary_view: its length, and either the value itself or its
# first bytes, the number of a buffer and where in it the value begins.
_PLACE, _INLINE = struct.Struct("<i4sii"), struct.Struct("<i12s")
_MOST_INLINE = 12  # bytes


class Rows:
    """Columns of equal length under the survey's names; some may be missing.

    Surveys rename and drop fields from one schema version to the next, so `get` takes every name
    that a column has had.
    """

    def __init__(self, columns: Mapping[str, pa.Array], length: int) -> None:
        self.columns = columns
        self.length = length

    @classmethod
    def of_table(cls, table: pa.Table, prefix: str = "") -> "Rows":
        """The columns of a one-chunk table whose names begin with `prefix`, which is removed."""
        columns = {
            name.removeprefix(prefix): table[name].chunk(0)
            for name in table.column_names
            if name.startswith(prefix)
        }
        return cls(columns, table.num_rows)

    @classmethod
    def of_struct(cls, struct: pa.StructArray) -> "Rows":
        """The fields of a struct array, null where the struct is null."""
        fields = zip(struct.type, struct.flatten(), strict=True)
        return cls({field.name: column for field, column in fields}, len(struct))

    def get(self, *names: str, type: pa.DataType) -> pa.Array:
        """The first column that exists of these names, cast; nulls if none does.

        NaN and infinities become null. Raises `pyarrow.ArrowInvalid` if a value does not fit the
        type.
        """
        for name in names:
            if name in self.columns:
                return tidy(self.columns[name]).cast(type)
        return pa.nulls(self.length, type)

    def has(self, name: str) -> bool:
        """Whether the survey's schema has this column."""
        return name in self.columns


def tidy(column: pa.Array) -> pa.Array:
    """A column with null in place of NaN and infinities."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))


def views(values: Sequence[Bytes | None]) -> pa.Array:
    """An array of type binary_view: the values where they lie, not copied; None is null."""
    places: list[bytes] = []
    buffers: list[pa.Buffer] = []
    for value in values:
        if value is None or len(value) <= _MOST_INLINE:
            places.append(_INLINE.pack(len(value or b""), bytes(value or b"")))
        else:
            places.append(_PLACE.pack(len(value), bytes(value[:4]), len(buffers), 0))
            buffers.append(pa.py_buffer(value))
    known = [value is not None for value in values]
    valid = None if all(known) else pa.py_buffer(np.packbits(known, bitorder="little"))
    described = pa.py_buffer(b"".join(places))
    return pa.Array.from_buffers(pa.binary_view(), len(values), [valid, described, *buffers])


def viewed(array: pa.Array) -> list[memoryview | None]:
    """The values of an array of type binary or binary_view, not copied; None for a null.

    Raises `TypeError` for another type.
    """
    if array.type not in (pa.binary(), pa.binary_view()):
        raise TypeError(f"the values are of type {array.type}, not binary")
    if not len(array):
        return []
    _, described, *buffers = array.buffers()
    data = [memoryview(buffer or b"").cast("B") for buffer in buffers]
    there = array.is_valid().to_pylist()
    stop = array.offset + len(array)
    if array.type == pa.binary():
        ends = np.frombuffer(described, np.int32)[array.offset : stop + 1].tolist()
        pairs = zip(pairwise(ends), there, strict=True)
        return [data[0][begin:end] if valid else None for (begin, end), valid in pairs]
    places = memoryview(described).cast("B")[_PLACE.size * array.offset : _PLACE.size * stop]
    values: list[memoryview | None] = []
    for at, (size, _, number, begin) in enumerate(_PLACE.iter_unpack(places)):
        if not there[at]:
            values.append(None)
        elif size <= _MOST_INLINE:
            values.append(places[_PLACE.size * at + 4 :][:size])
        else:
            values.append(data[number][begin : begin + size])
    return values


def explode(lists: pa.ListArray) -> tuple[np.ndarray, Rows]:
    """The row number of each element of all lists, and the elements, which are records."""
    return pc.list_parent_indices(lists).to_numpy(), Rows.of_struct(lists.flatten())


def constant(value: Any, length: int) -> pa.Array:
    """An array of `value`, repeated."""
    return pa.repeat(value, length)


def table_of(schema: pa.Schema, columns: Mapping[str, Any], length: int) -> pa.Table:
    """A table of `schema`. A missing column is null; a single value is repeated."""

    def column(field: pa.Field) -> pa.Array:
        value = columns.get(field.name)
        if value is None:
            return pa.nulls(length, field.type)
        if not isinstance(value, pa.Array | pa.ChunkedArray):
            value = constant(pa.scalar(value, field.type), length)
        return value if value.type == field.type else value.cast(field.type)

    return pa.Table.from_arrays([column(field) for field in schema], schema=schema)


def concat(schema: pa.Schema, tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of one schema, concatenated into one chunk."""
    return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()
