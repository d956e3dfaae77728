"""Measurements as a file says them: one row each, out of rows with lists or without.

A row of `MEASURED` has the number of the file's row that it comes from, from 1 on.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stampede.archives.layouts import MEASURES, Layout, Part
from stampede.errors import Damaged
from stampede.runtime import lazy_arrow_compute as pc

MEASURED = pa.schema(
    [
        pa.field("row", pa.int64()),
        *(pa.field(name, pa.string()) for name in (Part.OBJECT_ID, Part.BAND, Part.QUALITY)),
        *(pa.field(name, pa.float64()) for name in (Part.TIME, Part.RA, Part.DEC)),
        pa.field("value", pa.float64()),
        pa.field(Part.ERROR, pa.float64()),
        *(pa.field(name, pa.int64()) for name in (Part.SOURCE_ID, Part.DETECTOR)),
    ]
)


class Fault(NamedTuple):
    """Why a row of a file, or a measurement in it, was not stored; row 0 is the file itself."""

    row: int
    why: str


class Measured(NamedTuple):
    """Rows of `MEASURED`, and the rows of the file that gave none."""

    rows: pa.Table
    faults: Sequence[Fault] = ()


def names_of(schema: pa.Schema) -> list[str]:
    """The columns of a file; of records, and of lists of records, also their fields as ``a.b``."""
    found = []
    for field in schema:
        kind = field.type.value_type if is_list(field.type) else field.type
        if pa.types.is_struct(kind):
            found += [f"{field.name}.{each.name}" for each in kind]
        else:
            found.append(field.name)
    return found


def measured(batch: pa.RecordBatch, layout: Layout, before: int) -> Measured:
    """The measurements in rows of a file, `before` which it has so many.

    Raises `Damaged` if a column is not of a type that can be read.
    """
    columns = {part: _column(batch, name) for part, name in layout.columns.items()}
    numbers = pa.array(np.arange(before + 1, before + 1 + batch.num_rows))
    lengths = {
        part: pc.fill_null(pc.list_value_length(each), -1).to_numpy(zero_copy_only=False)
        for part, each in columns.items()
        if is_list(each.type)
    }
    if not lengths:
        return Measured(_table(numbers, columns, layout))
    longest = np.maximum.reduce([np.zeros(batch.num_rows, np.int64), *lengths.values()])
    whole = np.logical_and.reduce([(n == longest) | (n < 0) for n in lengths.values()])
    faults = []
    for at in np.flatnonzero(~whole).tolist():
        said = [f"{layout.columns[part]} {n[at]}" for part, n in lengths.items() if n[at] >= 0]
        why = f"its lists have several lengths: {', '.join(said)}"
        faults.append(Fault(int(numbers[at].as_py()), why))
    counts = longest[whole]
    parents = pa.array(np.repeat(np.flatnonzero(whole), counts))
    columns = {
        part: _elements(each.filter(pa.array(whole)), lengths[part][whole] >= 0, counts)
        if part in lengths
        else each.take(parents)
        for part, each in columns.items()
    }
    return Measured(_table(numbers.take(parents), columns, layout), faults)


def _elements(lists: pa.Array, there: np.ndarray, counts: np.ndarray) -> pa.Array:
    """The elements of lists, one after the other; of a null list so many nulls as are counted."""
    elements = pc.list_flatten(lists)
    if there.all():
        return elements
    known = np.repeat(there, counts)
    return elements.take(pa.array(np.cumsum(known) - 1, mask=~known))


def _table(numbers: pa.Array, columns: Mapping[Part, pa.Array], layout: Layout) -> pa.Table:
    values = {("value" if part in MEASURES else part): (part, each)
              for part, each in columns.items()}  # fmt: skip
    found = [numbers]
    for field in list(MEASURED)[1:]:
        if field.name not in values:
            found.append(pa.nulls(len(numbers), field.type))
            continue
        part, column = values[field.name]
        found.append(_cast(column, field.type, layout.columns[part]))
    return pa.Table.from_arrays(found, schema=MEASURED)


def _cast(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """A column as `kind`. Raises `Damaged`: an id that is a float has lost digits."""
    given = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_number = pa.types.is_integer(given) or pa.types.is_floating(given)
    is_text = any(
        test(given)
        for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    )
    fits = {
        pa.string(): is_text or pa.types.is_integer(given),
        pa.int64(): pa.types.is_integer(given),
        pa.float64(): is_number or pa.types.is_decimal(given),
    }[kind]
    if not (fits or pa.types.is_null(given)):
        wanted = {pa.string(): "text or integers", pa.int64(): "integers"}.get(kind, "numbers")
        raise Damaged(f"its column {name} holds {given}, not {wanted}")
    try:
        return column.cast(given).cast(kind)
    except pa.ArrowInvalid as error:
        raise Damaged(f"its column {name} cannot be read: {error}") from None


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column, or the field ``a.b`` of a record or a list of records as a list."""
    if name in batch.schema.names:
        return batch[name]
    top, _, field = name.partition(".")
    column = batch[top]
    if not is_list(column.type):
        return pc.struct_field(column, field)
    items = column.flatten()
    offsets = np.append(0, np.cumsum(pc.fill_null(pc.list_value_length(column), 0)))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pc.struct_field(items, field))


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is one of lists."""
    return any(
        test(kind)
        for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    )
