"""The tree of RFC 6962, beside its definition, and the test vectors of its reference programs."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.proofs.merkle_tree import leaf_hash, path_of, root_from, root_of

# Entries and roots of the log of certificate-transparency's reference tests (merkletree's
# `testonly` package), which implement RFC 6962.
ENTRIES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def defined(entries: list[bytes]) -> bytes:
    """MTH of section 2.1, as it is written there."""
    if not entries:
        return sha256().digest()
    if len(entries) == 1:
        return leaf_hash(entries[0])
    split = 1 << (len(entries) - 1).bit_length() - 1
    return sha256(b"\1" + defined(entries[:split]) + defined(entries[split:])).digest()


@pytest.mark.parametrize("count", range(1, 9))
def test_the_roots_are_those_of_the_reference(count: int) -> None:
    assert root_of([leaf_hash(entry) for entry in ENTRIES[:count]]).hex() == ROOTS[count - 1]


@given(st.lists(st.binary(max_size=3), max_size=70))
def test_the_root_is_that_of_the_definition(entries: list[bytes]) -> None:
    assert root_of([leaf_hash(entry) for entry in entries]) == defined(entries)


@given(st.lists(st.binary(max_size=3), min_size=1, max_size=70), st.data())
def test_a_path_leads_to_the_root_from_its_leaf_alone(entries: list[bytes], data) -> None:
    hashes = [leaf_hash(entry) for entry in entries]
    number = data.draw(st.integers(0, len(entries) - 1))
    path, root = path_of(hashes, number), defined(entries)
    assert root_from(hashes[number], number, len(entries), path) == root
    assert root_from(leaf_hash(b"another"), number, len(entries), path) != root
    assert root_from(hashes[number], number, len(entries), [*path, root]) is None
    assert root_from(hashes[number], len(entries), len(entries), path) is None
    if path:
        assert root_from(hashes[number], number, len(entries), path[:-1]) is None


@given(st.integers(1, 200), st.integers(0, 4))
def test_the_root_over_subtrees_is_that_over_leaves(count: int, depth: int) -> None:
    hashes = [leaf_hash(bytes([number])) for number in range(count)]
    size = 1 << depth
    roots = [root_of(hashes[start : start + size]) for start in range(0, count, size)]
    assert root_of(roots) == root_of(hashes)
