"""Arrays of binary values: as Arrow reads them, and without a copy where that is promised."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.alerts.arrays import viewed, views

VALUES = st.lists(st.none() | st.binary(max_size=40), max_size=12)


def as_bytes(values: list) -> list[bytes | None]:
    return [value if value is None else bytes(value) for value in values]


@given(VALUES, st.integers(0, 3), st.integers(0, 12))
def test_views_are_the_values_for_arrow_and_for_python(values, begin, count) -> None:
    array = views([value if value is None else memoryview(value) for value in values])
    array.validate(full=True)
    assert array.type == pa.binary_view()
    assert array.to_pylist() == as_bytes(viewed(array)) == values
    part = array.slice(begin, count)
    assert part.to_pylist() == as_bytes(viewed(part)) == values[begin : begin + count]


@given(VALUES, st.integers(0, 3), st.integers(0, 12))
def test_binary_arrays_are_viewed_too(values, begin, count) -> None:
    for kind in (pa.binary(), pa.binary_view()):
        part = pa.array(values, kind).slice(begin, count)
        assert as_bytes(viewed(part)) == part.to_pylist() == values[begin : begin + count]


def test_nothing_is_copied() -> None:
    message = memoryview(bytes(range(100)))
    array = views([message[10:50], message[50:90]])
    begin = pa.py_buffer(message).address
    for again in (viewed(array), viewed(pa.concat_arrays([array.slice(0, 1), array.slice(1)]))):
        assert [pa.py_buffer(each).address - begin for each in again] == [10, 50]


def test_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="string, not binary"):
        viewed(pa.array(["SIMPLE"]))
