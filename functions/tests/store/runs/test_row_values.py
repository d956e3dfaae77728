"""Python values of few rows, compared with those of `to_pylist`."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from stampede.store.runs.row_values import RowValues

VALUES = {
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.uint32(): st.integers(0, (1 << 32) - 1),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(max_size=8),
    pa.bool_(): st.booleans(),
    pa.binary(): st.binary(max_size=8),
    pa.int16(): st.none(),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Columns of every type, with and without nulls, in one chunk or two."""
    count = draw(st.integers(1, 12))
    columns = {}
    for number, (kind, values) in enumerate(VALUES.items()):
        for nulls, each in ((0, values), (1, st.none() | values)):
            some = draw(st.lists(each, min_size=count, max_size=count))
            cut = draw(st.integers(0, count))
            chunks = [pa.array(some[:cut], kind), pa.array(some[cut:], kind)]
            columns[f"{number} {nulls}"] = pa.chunked_array([one for one in chunks if len(one)])
    return pa.table(columns)


@given(tables(), st.data())
def test_rows_are_those_of_arrow(rows: pa.Table, data: st.DataObject) -> None:
    rows = rows.slice(data.draw(st.integers(0, 2)))  # of what memory holds a part may be meant
    start = data.draw(st.integers(0, rows.num_rows))
    end = data.draw(st.integers(start, rows.num_rows))
    expected = [tuple(row.values()) for row in rows.slice(start, end - start).to_pylist()]
    assert RowValues(rows).between(start, end) == expected


def test_memory_is_not_copied() -> None:
    rows = pa.table({"number": pa.array(range(100_000)), "name": pa.array(["a"] * 100_000)})
    before = pa.total_allocated_bytes()
    values = RowValues(rows)
    assert values.between(7, 9) == [(7, "a"), (8, "a")]
    assert pa.total_allocated_bytes() - before < 10_000
