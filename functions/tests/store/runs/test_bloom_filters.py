"""Filters: a key that is there always passes, others seldom, and the bytes are Parquet's."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.store.parquet.xxhash64 import hash_key, hash_keys
from stampede.store.runs.bloom_filters import Filter, OneHash, Wanted
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from tests.store.parquet.test_xxhash64 import INT64, TEXT

IDS = [str(10**17 + 7 * n) for n in range(100_000)]


@given(st.lists(TEXT, min_size=1) | st.lists(INT64, min_size=1), st.data())
def test_no_key_that_is_there_is_left_out(keys: list, data: st.DataObject) -> None:
    some = [*keys, type(keys[0])()]
    one = Filter.of(hash_keys(pa.array(some)))
    assert one.passes(hash_keys(pa.array(some))).all()
    assert all(one.passes_one(OneHash.of(key)) for key in some)
    wanted = Wanted.of(data.draw(st.lists(st.sampled_from(some))), SPECS[type(keys[0])])
    assert wanted.passing(one).values == wanted.values
    assert wanted.passing(None).values == wanted.values


SPECS = {str: DETECTIONS, int: CUTOUTS}


@pytest.mark.parametrize("count", [1, 20, 600, 5_000, 50_000])
def test_of_other_keys_one_in_a_hundred_passes(count: int) -> None:
    hashes = hash_keys(pa.array(IDS[:count]))
    one = Filter.of(hashes)
    assert len(one.data) <= 32 + 1.5 * count
    others = hash_keys(pa.array(IDS[50_000:]))
    assert one.passes(others).mean() < 0.01
    alone = [one.passes_one(OneHash.of(key)) for key in IDS[50_000:50_300]]
    assert one.passes(others[:300]).tolist() == alone


def test_another_order_makes_no_other_bytes() -> None:
    hashes = hash_keys(pa.array(IDS[:1000]))
    assert Filter.of(hashes) == Filter.of(hashes[::-1].copy())


def test_the_bytes_are_those_of_a_bloom_filter_of_parquet() -> None:
    """Arrow's writer is the other implementation; its filters have a power of two of blocks."""
    keys, sink = pa.array(IDS[:2730]), pa.BufferOutputStream()
    rows, options = pa.table({"key": keys}), {"key": {"ndv": 2730, "fpp": 0.01}}
    with pq.ParquetWriter(sink, rows.schema, bloom_filter_options=options) as writer:
        writer.write_table(rows)
    data = sink.getvalue()
    place = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0)
    written = data[place.bloom_filter_offset :][: place.bloom_filter_length].to_pybytes()
    assert written.endswith(Filter.of(hash_keys(keys)).data)
    assert len(written) - 4096 < 32  # its header


def test_wanted_keys_that_pass_stay_in_order() -> None:
    one = Filter.of(hash_keys(pa.array(IDS[:50])))
    for wanted in (Wanted.of(IDS[40:60], DETECTIONS), Wanted.of(IDS[45:52], DETECTIONS)):
        passing = wanted.passing(one)
        assert set(passing.values) >= set(wanted.values) & set(IDS[:50])
        assert list(passing.values) == sorted(passing.values)
        assert np.array_equal(
            passing.places, np.array([value.encode() for value in passing.values])
        )
        assert passing.hashes.tolist() == [hash_key(value) for value in passing.values]
    assert Wanted.of(IDS[60:61], DETECTIONS).passing(one).values == []
