"""Merging versions gives what the same rule in plain Python gives."""

import math
import random
import struct
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.alerts.columns import CUTOUT_LOCATION
from stampede.store.runs.merge import is_sorted, order_codes, sort_unique
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, TableSpec
from tests.support.store.rows import bits, detections, key_of, merged, ordered, table

some_rows = st.lists(detections, max_size=25)


@given(some_rows)
def test_merging_gives_what_plain_python_gives(rows: list) -> None:
    assert bits(sort_unique(table(rows), DETECTIONS)) == bits(merged(rows, DETECTIONS))


@given(some_rows, st.randoms(use_true_random=False))
def test_order_of_arrival_does_not_matter(rows: list, chance: random.Random) -> None:
    """Commutative, associative, idempotent: any order, any grouping, any repeats."""
    expected = bits(sort_unique(table(rows), DETECTIONS))
    again = rows + chance.sample(rows, len(rows) // 2)
    chance.shuffle(again)
    cut = chance.randint(0, len(again))
    parts = [
        sort_unique(table(rows_of_part), DETECTIONS) for rows_of_part in (again[:cut], again[cut:])
    ]
    assert bits(sort_unique(pa.concat_tables(parts), DETECTIONS)) == expected


IMAGES = st.fixed_dictionaries(
    {
        "alert_id": st.sampled_from([-1, 7, 8]),
        "survey": st.sampled_from(["lsst", "ztf"]),
        "kind": st.sampled_from(["difference", "science"]),
        "message_crc32": st.sampled_from([None, 0, 2**32 - 1]),
        "object_id": st.just("Z"),
        "mjd": st.just(60000.0),
    }
)


@given(st.one_of(st.lists(detections, max_size=5), st.lists(IMAGES, max_size=5)))
def test_rows_are_sorted_if_each_key_is_above_the_one_before(rows: list) -> None:
    spec = CUTOUTS if rows and "kind" in rows[0] else DETECTIONS
    for some in (rows, sorted(rows, key=lambda row: key_of(row, spec)), merged_keys(rows, spec)):
        keys = [key_of(row, spec) for row in some]
        ascending = all(one < other for one, other in pairwise(keys))
        halves = [table(half, spec.schema) for half in (some[:2], some[2:])]
        assert is_sorted(pa.concat_tables(halves), spec) == ascending


def merged_keys(rows: list, spec: TableSpec) -> list:
    """One row of each key, sorted."""
    return [row for _, row in sorted({key_of(row, spec): row for row in rows}.items())]


def test_an_image_location_wins_against_a_null() -> None:
    place = dict.fromkeys(CUTOUT_LOCATION.names) | {"survey": "ztf", "object_id": "a", "mjd": 1.0}
    absent = place | {"alert_id": 1, "kind": "science"}
    present = absent | {"pack": "packs/1/a.parquet", "page_offset": 4, "length": 3}
    other = absent | {"kind": "difference"}
    rows = table([present, other, absent], CUTOUT_LOCATION)
    assert sort_unique(rows, CUTOUTS).to_pylist() == [other, present]


def test_sorted_rows_are_not_copied() -> None:
    row = {f.name: None if f.nullable else 0 for f in CUTOUT_LOCATION} | {
        "survey": "a",
        "kind": "a",
    }
    rows = table([row | {"alert_id": n, "object_id": ""} for n in range(3)], CUTOUT_LOCATION)
    unique = sort_unique(rows, CUTOUTS)
    assert unique["alert_id"].chunk(0).buffers()[1].address == (
        rows["alert_id"].chunk(0).buffers()[1].address
    )


def test_few_rows_in_order_are_returned_as_they_are() -> None:
    """The rows of one alert, as a lookup finds them: numpy would take 0.2 ms for three."""
    row = {f.name: None if f.nullable else 0 for f in CUTOUT_LOCATION} | {"object_id": ""}
    kinds = ["difference", "science", "template"]
    in_order = [
        row | {"alert_id": alert_id, "survey": survey, "kind": kind}
        for alert_id in (1, 2)
        for survey in ("lsst", "ztf", "\uffff", "\U0001f52d")  # the last is less in UTF-16
        for kind in kinds
    ][:16]
    rows = table(in_order, CUTOUT_LOCATION)
    assert sort_unique(rows, CUTOUTS) is rows
    shuffled, repeated = [*in_order[1:], in_order[0]], [*in_order[:15], in_order[14]]
    for other, expected in ((shuffled, in_order), (repeated, in_order[:15])):
        assert sort_unique(table(other, CUTOUT_LOCATION), CUTOUTS).to_pylist() == expected


_nan = struct.unpack("d", struct.pack("Q", 0x7FF8_0000_0000_0001))[0]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [None, math.nan, -math.inf, -1e308, -5e-324, -0.0, 0.0, 1.0, math.inf]),
        (pa.float32(), [None, math.nan, -math.inf, -1.5, -0.0, 0.0, 1.5, math.inf]),
        (pa.int64(), [None, -(2**63), -1, 0, 2**63 - 1]),
        (pa.int16(), [None, -(2**15), 0, 2**15 - 1]),
        (pa.bool_(), [None, False, True]),
        (pa.string(), [None, "", "a", "a\0", "aa", "b", "é", "\uffff", "\U0001f52d"]),
        (pa.binary(), [None, b"", b"\0", b"a", b"\xff"]),
    ],
)
def test_order_codes_keep_the_order(kind: pa.DataType, values: list) -> None:
    for without_null in (values, values[1:]):
        shuffled = list(enumerate(without_null))
        random.Random(1).shuffle(shuffled)
        codes = order_codes(pa.array([value for _, value in shuffled], kind))
        assert [shuffled[i][0] for i in np.argsort(codes)] == list(range(len(without_null)))
        assert len(set(codes.tolist())) == len(without_null)


def test_two_kinds_of_nan_are_two_values() -> None:
    codes = order_codes(pa.array(np.array([math.nan, _nan, -math.inf, -math.nan])))
    assert len(set(codes.tolist())) == 4
    assert codes.argmax() == 2


@given(st.lists(st.one_of(st.none(), st.floats()), max_size=20))
def test_order_codes_of_floats(values: list) -> None:
    codes = order_codes(pa.array(values, pa.float64()))
    by_code = sorted(range(len(values)), key=lambda i: codes[i])
    assert [ordered(values[i]) for i in by_code] == sorted(map(ordered, values))
