"""XXH64: the published values, and the same hash of one key as of many."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.store.parquet.xxhash64 import LONGEST, hash_key, hash_keys

# UTF-8 has no lone surrogates.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=70)
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", 0xEF46DB3751D8E999),
        ("a", 0xD24EC4F1A98C6E5B),
        ("as", 0x1C330FB2D66BE179),
        ("asd", 0x631C37CE72A97393),
        ("asdf", 0x415872F599CEA71E),
        ("Call me Ishmael. Some years ago--never mind how long precisely-", 0x02A2E85470D6FD96),
    ],
)
def test_published_values(key: str, value: int) -> None:
    assert hash_key(key) == value


@given(st.lists(TEXT, max_size=40), st.integers(0, 5))
def test_many_strings_have_the_hash_of_each(keys: list[str], skipped: int) -> None:
    array = pa.array(keys, pa.string())[skipped:]
    assert hash_keys(array).tolist() == [hash_key(key) for key in keys[skipped:]]


@given(st.lists(INT64, max_size=40), st.integers(0, 5))
def test_many_numbers_have_the_hash_of_each(keys: list[int], skipped: int) -> None:
    array = pa.array(keys, pa.int64())[skipped:]
    assert hash_keys(array).tolist() == [hash_key(key) for key in keys[skipped:]]


def test_only_the_beginning_of_a_long_key_counts() -> None:
    begin = "é" * (LONGEST // 2)
    assert hash_key(begin + "1") == hash_key(begin + "2") == hash_key(begin)
    assert hash_key("x" + begin) != hash_key("x" + begin[:-1])
    assert hash_keys(pa.array([begin * 1000])).tolist() == [hash_key(begin)]
