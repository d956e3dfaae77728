"""Rows of a table as Python values, for one row or a few at a time.

`to_pylist` of a slice makes an Arrow array of each column and an Arrow scalar of each value. When
other work has driven its code and data out of the processor's caches, that takes 0.1 ms for three
rows, and this half as long. See docs/adr/0053-cold-caches.md.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from stampede.store.runs.merge import one_array

COLUMN_BYTES = 400
"""Memory that a column takes here, besides that of its values."""
Column = Callable[[int, int], list[Any]]
"""The values of a column from one row to another, which is left out."""

_FORMATS = {
    pa.int32(): "i",
    pa.uint32(): "I",
    pa.int64(): "q",
    pa.float32(): "f",
    pa.float64(): "d",
}
"""What `memoryview.cast` calls a type: Arrow's layout of values is that of C.
https://arrow.apache.org/docs/format/Columnar.html"""


class RowValues:
    """The values of a table, by reference to its memory.

    Parameters
    ----------
    rows
        Columns of any types. Those of numbers or strings without nulls are sooner than others.
    """

    def __init__(self, rows: pa.Table) -> None:
        self._columns = [_column(one_array(column)) for column in rows.columns]

    def between(self, start: int, end: int) -> list[tuple[Any, ...]]:
        """The rows from `start` to `end`, which is left out, as `to_pylist` gives their values."""
        return list(zip(*[column(start, end) for column in self._columns], strict=True))


def _column(array: pa.Array) -> Column:
    if array.null_count == len(array):
        return _nulls
    if array.null_count or array.offset:
        return _any(array)
    if array.type in _FORMATS:
        return _numbers(array.buffers()[1], _FORMATS[array.type])
    if pa.types.is_string(array.type):
        return _strings(*array.buffers()[1:])
    return _any(array)


def _nulls(start: int, end: int) -> list[Any]:
    return [None] * (end - start)


def _any(array: pa.Array) -> Column:
    def values(start: int, end: int) -> list[Any]:
        found: list[Any] = array[start:end].to_pylist()
        return found

    return values


def _numbers(buffer: pa.Buffer, form: str) -> Column:
    numbers: Any = memoryview(buffer).cast("B").cast(form)  # type: ignore[call-overload]

    def values(start: int, end: int) -> list[Any]:
        found: list[Any] = numbers[start:end].tolist()
        return found

    return values


def _strings(offsets: pa.Buffer, text: pa.Buffer | None) -> Column:
    ends, data = memoryview(offsets).cast("B").cast("i"), memoryview(text or b"")

    def values(start: int, end: int) -> list[Any]:
        places = ends[start : end + 1].tolist()
        return [str(data[a:b], "utf-8") for a, b in itertools.pairwise(places)]

    return values
