"""Coverage behaves as a set of offsets."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.store.offsets import coverage
from stampede.store.offsets.coverage import Coverage, LastUnion

partitions = st.tuples(
    st.sampled_from(["ztf_20261120_programid1", "lsst-alerts"]), st.integers(0, 2)
)
offsets = st.dictionaries(partitions, st.lists(st.integers(0, 40), max_size=30), max_size=4)


def as_set(offsets: dict) -> set:
    return {(at, offset) for at, numbers in offsets.items() for offset in numbers}


def members(coverage: Coverage) -> set:
    return {
        (at, offset)
        for at in coverage.partitions()
        for start, end in coverage.intervals(*at)
        for offset in range(start, end)
    }


@given(offsets, offsets)
def test_is_a_set_of_offsets(a: dict, b: dict) -> None:
    ca, cb = Coverage.of(a), Coverage.of(b)
    sa, sb = as_set(a), as_set(b)
    assert members(ca) == sa
    assert members(ca | cb) == sa | sb
    assert members(ca - cb) == sa - sb
    assert {(at, n) for at in [*a, ("x", 0)] for n in range(42) if (*at, n) in ca} == sa
    assert len(ca) == len(sa)
    assert bool(ca) == bool(sa)
    assert (ca == cb) == (sa == sb)
    if ca == cb:
        assert hash(ca) == hash(cb)
        assert ca.to_json() == cb.to_json()


@given(st.lists(offsets, max_size=6))
def test_union_of_many_is_their_sum(many: list) -> None:
    united = Coverage.union(map(Coverage.of, many))
    assert members(united) == set().union(*map(as_set, many))


@given(st.lists(st.tuples(offsets, st.booleans()), max_size=8), st.integers(0, 2))
def test_the_last_union_is_the_union(changes: list[tuple[dict, bool]], large: int) -> None:
    """Whatever is added or left out since the last one."""
    last, parts = LastUnion(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coverage, "LARGE", large)
        for each, keep in changes:
            parts = [*parts[0 if keep else 1 :], Coverage.of(each)]
            united = last.of(parts)
            assert united == Coverage.union(parts)
            assert last.of(list(parts)) is united


@given(offsets)
def test_intervals_neither_touch_nor_overlap(a: dict) -> None:
    coverage = Coverage.of(a)
    for at in coverage.partitions():
        spans = coverage.intervals(*at)
        assert spans
        assert all(start < end for start, end in spans)
        assert all(end < start for (_, end), (start, _) in pairwise(spans))


@given(offsets)
def test_json_round_trip(a: dict) -> None:
    coverage = Coverage.of(a)
    assert Coverage.from_json(coverage.to_json()) == coverage
    assert Coverage.from_json(coverage.to_json().encode()) == coverage


@given(offsets, partitions, st.integers(0, 45), st.integers(0, 45))
def test_missing(a: dict, at: tuple[str, int], low: int, high: int) -> None:
    missing = Coverage.of(a).missing(*at, low, high)
    expected = set(range(low, high)) - set(a.get(at, ()))
    assert {o for start, end in missing for o in range(start, end)} == expected


def test_json_is_plain() -> None:
    coverage = Coverage.of({("a.b_c-d", 3): [5, 1, 2, 2], ("a", 0): [2**62]})
    assert json.loads(coverage.to_json()) == {
        "a/0": [[2**62, 2**62 + 1]],
        "a.b_c-d/3": [[1, 3], [5, 6]],
    }


def test_reads_intervals_in_any_order() -> None:
    assert Coverage.from_json('{"t/0": [[5, 9], [1, 3], [3, 6]], "t/1": []}') == Coverage.of(
        {("t", 0): range(1, 9)}
    )


def test_partitions_are_sorted_and_not_empty() -> None:
    coverage = Coverage.of({("b", 0): [1], ("a", 10): [1], ("a", 2): [1], ("c", 0): []})
    assert coverage.partitions() == [("a", 2), ("a", 10), ("b", 0)]


def test_differs_from_other_types() -> None:
    assert Coverage() != {}
    assert repr(Coverage.of({("t", 0): [1]})) == 'Coverage({"t/0":[[1,2]]})'


@pytest.mark.long
@pytest.mark.parametrize("step", [1, 2])
def test_a_million_offsets(step: int) -> None:
    coverage = Coverage.of({("t", 0): range(0, 1_000_000, step)})
    assert len(coverage | coverage) == 1_000_000 // step
    assert not coverage - coverage
