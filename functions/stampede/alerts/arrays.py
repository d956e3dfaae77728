"""Vectorised helpers for the surveys' modules."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stampede.alerts.container import Bytes


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


def binary(values: Sequence[Sequence[Bytes] | None]) -> pa.Array:
    """An array of binary values, each given in pieces; None is null.

    Each byte is copied once; `pa.array` copies them again whenever its memory grows. Raises
    `pyarrow.ArrowInvalid` for 2 GiB or more.
    """
    lengths = [0 if pieces is None else sum(map(len, pieces)) for pieces in values]
    ends = pa.array(np.cumsum([0, *lengths]), pa.int32())
    data = b"".join(piece for pieces in values if pieces is not None for piece in pieces)
    known = np.array([pieces is not None for pieces in values], bool)
    valid = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
    buffers = [valid, ends.buffers()[1], pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


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
