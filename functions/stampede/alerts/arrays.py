"""Small vectorised steps that reading both surveys' alerts is made of."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Rows:
    """Columns of equal length under their survey's names, some of which may not exist.

    Surveys rename and drop fields from one schema version to the next, so a column is asked
    for by every name it has had.
    """

    def __init__(self, columns: Mapping[str, pa.Array], length: int) -> None:
        self.columns = columns
        self.length = length

    @classmethod
    def of_table(cls, table: pa.Table, prefix: str = "") -> "Rows":
        """The columns of a one-chunk table whose name begins with `prefix`, without it."""
        columns = {
            name.removeprefix(prefix): table[name].chunk(0)
            for name in table.column_names
            if name.startswith(prefix)
        }
        return cls(columns, table.num_rows)

    @classmethod
    def of_struct(cls, struct: pa.StructArray) -> "Rows":
        """The fields of a struct array."""
        return cls({f.name: struct.field(i) for i, f in enumerate(struct.type)}, len(struct))

    def get(self, *names: str, type: pa.DataType) -> pa.Array:
        """The first column there is of these names, cast; nulls where there is none.

        Not a number becomes null. Raises `pyarrow.ArrowInvalid` where a value does not fit
        the type.
        """
        for name in names:
            if name in self.columns:
                return tidy(self.columns[name]).cast(type)
        return pa.nulls(self.length, type)

    def has(self, name: str) -> bool:
        """Whether the survey's schema has this column."""
        return name in self.columns


def tidy(column: pa.Array) -> pa.Array:
    """A column with null in place of not-a-number."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))


def explode(lists: pa.ListArray) -> tuple[np.ndarray, Rows]:
    """The elements of all lists of records, and the number of the row each came from."""
    return pc.list_parent_indices(lists).to_numpy(), Rows.of_struct(lists.flatten())


def constant(value: Any, length: int) -> pa.Array:
    """`value`, `length` times."""
    return pa.repeat(value, length)


def table_of(schema: pa.Schema, columns: Mapping[str, Any], length: int) -> pa.Table:
    """A table of `schema`; a column that is not given is null, a single value is repeated."""

    def column(field: pa.Field) -> pa.Array:
        value = columns.get(field.name)
        if value is None:
            return pa.nulls(length, field.type)
        if not isinstance(value, pa.Array | pa.ChunkedArray):
            value = constant(pa.scalar(value, field.type), length)
        return value if value.type == field.type else value.cast(field.type)

    return pa.Table.from_arrays([column(field) for field in schema], schema=schema)


def concat(schema: pa.Schema, tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of one schema, one after the other, as one of one chunk."""
    return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()
