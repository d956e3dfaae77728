"""Vectorised helpers for the surveys' modules."""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from stampede.errors import Unusable
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.decompression import Bytes

# How Arrow describes a value of type binary_view: its length, and either the value itself or its
# first bytes, the number of a buffer and where in it the value begins.
_PLACE, _INLINE = struct.Struct("<i4sii"), struct.Struct("<i12s")
_MOST_INLINE = 12  # bytes
AB_ZERO = 31.4  # magnitude of 1 nJy


class Rows:
    """Columns of equal length under the survey's names; some may be missing.

    Surveys rename and drop fields from one schema version to the next, so `get` takes every name
    that a column has had.
    """

    def __init__(self, columns: Mapping[str, pa.Array], length: int, where: str = "") -> None:
        self.columns = columns
        self.length = length
        self._where = where

    @classmethod
    def of_table(cls, table: pa.Table, prefix: str = "") -> "Rows":
        """The columns of a one-chunk table whose names begin with `prefix`, which is removed."""
        columns = {
            name.removeprefix(prefix): table[name].chunk(0)
            for name in table.column_names
            if name.startswith(prefix)
        }
        return cls(columns, table.num_rows, prefix)

    @classmethod
    def of_struct(cls, struct: pa.StructArray, where: str = "") -> "Rows":
        """The fields of a struct array, null where the struct is null; `where` is for errors."""
        if not pa.types.is_struct(struct.type):
            raise Unusable(f"the schema's field {where.rstrip('.')} does not hold records")
        fields = zip(struct.type, struct.flatten(), strict=True)
        return cls({field.name: column for field, column in fields}, len(struct), where)

    def get(self, *names: str, type: pa.DataType) -> pa.Array:
        """The first column that exists of these names, cast; nulls if none does.

        NaN and infinities become null. Raises `Unusable` if the column is not of such a type, and
        `pyarrow.ArrowInvalid` if one of its values does not fit the type.
        """
        for name in names:
            if name in self.columns:
                column = self.columns[name]
                if column.type == type:
                    return tidy(column)
                if not fits(column.type, type):
                    raise self._unfit(name, f"{_named(type)} or the like")
                return tidy(tidy(column).cast(type))
        return pa.nulls(self.length, type)

    def integers(self, name: str, type: pa.DataType) -> pa.Array:
        """As `get`, of a column of integers alone. Raises as `get`."""
        if name in self.columns and not pa.types.is_integer(self.columns[name].type):
            raise self._unfit(name, "int or long")
        return self.get(name, type=type)

    def _unfit(self, name: str, wanted: str) -> Unusable:
        return Unusable(f"the schema's field {self._where}{name} is not of type {wanted}")

    def has(self, name: str) -> bool:
        """Whether the survey's schema has this column."""
        return name in self.columns


def fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type are read as values of another: numbers as numbers, texts."""
    kinds: tuple[Callable[[pa.DataType], bool], ...] = (
        lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind),
        lambda kind: pa.types.is_string(kind) or pa.types.is_dictionary(kind),
        pa.types.is_timestamp,
    )
    return any(kind(given) and kind(wanted) for kind in kinds)


def _named(kind: pa.DataType) -> str:
    """A type as Avro's schemas name it."""
    return {"int64": "long", "int32": "int", "bool": "boolean"}.get(str(kind), str(kind))


def tidy(column: pa.Array) -> pa.Array:
    """A column with null in place of NaN and infinities."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))


def nanojansky(magnitudes: pa.Array) -> pa.Array:
    """AB magnitudes as nJy; also a zero point as nJy per count (Oke & Gunn 1983)."""
    return pc.power(10.0, pc.divide(pc.subtract(AB_ZERO, magnitudes), 2.5))


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


def explode(lists: pa.ListArray, where: str = "") -> tuple[np.ndarray, Rows]:
    """The row number of each element of all lists, and the elements, which are records.

    `where` is the name of the field, for errors. Raises `Unusable` if they are no lists of records.
    """
    if not pa.types.is_list(lists.type):
        raise Unusable(f"the schema's field {where} is not an array")
    return pc.list_parent_indices(lists).to_numpy(), Rows.of_struct(lists.flatten(), f"{where}.")


def chosen(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """Columns of a one-chunk table, ``a``, or ``a.b`` for a field of a struct: those that exist."""
    columns = {}
    for name in names:
        top, _, field = name.partition(".")
        if top in table.column_names:
            column = table[top].chunk(0)
            columns[name] = Rows.of_struct(column, top).columns[field] if field else column
    return pa.table(columns)


def head_of(
    ids: tuple[pa.Array, pa.Array],
    own: Rows,
    mjd: pa.Array,
    band: pa.Array,
    names: tuple[str, str] = ("ra", "dec"),
) -> pa.Table:
    """One row per alert, as `Survey.head`, of a survey that says no time of processing.

    Parameters
    ----------
    ids
        Alert ids and object ids.
    own
        Its own measurement.
    mjd
        Times of the measurements, MJD TAI.
    band
        Their bands.
    names
        The fields of `own` with the position, ICRS degrees.
    """
    ra, dec = (own.get(name, type=pa.float64()) for name in names)
    columns = {"alert_id": ids[0], "object_id": ids[1], "mjd": mjd, "band": band}
    return pa.table({**columns, "ra": ra, "dec": dec, "processed_mjd": mjd})


def images_of(table: pa.Table, name: str, *fields: str) -> pa.Array:
    """The images in a field of the alerts; null where none was sent.

    If it is a record, they are in the first of `fields` that it has. Raises `Unusable` if it has
    none of them.
    """
    if name not in table.column_names:
        return pa.nulls(len(table), pa.binary())
    rows = Rows.of_table(table)
    if fields:  # a struct may be null while its fields are not: `of_struct` knows both
        rows = Rows.of_struct(table[name].chunk(0), f"{name}.")
        if not any(map(rows.has, fields)):
            raise Unusable(f"the schema's field {name} has no {' or '.join(fields)}")
    data = rows.get(*fields or (name,), type=pa.binary())
    return pc.if_else(pc.greater(pc.binary_length(data), 0), data, pa.scalar(None, data.type))


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
