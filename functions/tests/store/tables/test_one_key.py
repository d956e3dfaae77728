"""One key is looked up in another way than several: both find the same parts and row groups."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.store.runs.bloom_filters import Wanted
from stampede.store.runs.footer import RunIndex
from stampede.store.runs.keys import LONG, bounds, overlapping
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, TableSpec
from stampede.store.tables import view as table_view
from stampede.store.tables.view import Spans

TEXT = st.text("\0a\u00e9", max_size=4) | st.sampled_from(["a" * LONG, "a" * LONG + "\u00e9"])
KEYS: dict[TableSpec, st.SearchStrategy[Any]] = {
    CUTOUTS: st.integers(-3, 12) | st.sampled_from([-(1 << 63), (1 << 63) - 1]),
    DETECTIONS: TEXT,
}


def ranges(data: st.DataObject, spec: TableSpec) -> list[list]:
    """Least and greatest key of some parts."""
    ends = st.lists(KEYS[spec], min_size=2, max_size=2).map(sorted)
    return data.draw(st.lists(ends, max_size=6))


def in_numpy(firsts: np.ndarray, lasts: np.ndarray, wanted: Wanted) -> list[int]:
    found: list[int] = overlapping(firsts, lasts, wanted.places).tolist()
    return found


@pytest.mark.parametrize("spec", KEYS)
@given(st.data())
def test_parts(spec: TableSpec, data: st.DataObject) -> None:
    ends = ranges(data, spec)
    parts: Sequence[Any] = [SimpleNamespace(rows=1, first=one, last=other) for one, other in ends]
    wanted = Wanted.of([data.draw(KEYS[spec])], spec)
    firsts = bounds([one for one, _ in ends], spec)
    lasts = bounds([other for _, other in ends], spec, upper=True)
    expected = [parts[number] for number in in_numpy(firsts, lasts, wanted)]
    assert Spans(parts, spec).holding(wanted) == expected


def test_parts_that_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_view, "FEW", 2)
    parts: Sequence[Any] = [SimpleNamespace(rows=1, first=n, last=n + 1) for n in range(3)]
    assert Spans(parts, CUTOUTS).holding(Wanted.of([1], CUTOUTS)) == [*parts[:2]]


@pytest.mark.parametrize("spec", KEYS)
@given(st.data())
def test_row_groups(spec: TableSpec, data: st.DataObject) -> None:
    keys = sorted(data.draw(st.lists(KEYS[spec], min_size=2, max_size=12)))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(keys) - 1), max_size=4)))
    groups = [keys[start:end] for start, end in zip([0, *cuts], [*cuts, len(keys)], strict=True)]
    firsts = bounds([group[0] for group in groups], spec)
    lasts = bounds([group[-1] for group in groups], spec, upper=True)
    unused: Any = None
    first = data.draw(st.integers(0, 2))
    index = RunIndex(firsts, lasts, unused, unused, unused, unused, first)
    wanted = Wanted.of([data.draw(KEYS[spec])], spec)
    expected = [first + number for number in in_numpy(firsts, lasts, wanted)]
    assert [*index.groups(wanted)] == expected
