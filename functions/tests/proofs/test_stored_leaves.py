"""Reading a part of a night's entries takes a part of the requests and of the memory."""

import numpy as np
import pytest

from stampede.errors import Damaged
from stampede.proofs import leaves
from stampede.proofs.leaves import (
    ID_BYTES,
    SUBTREE,
    WIDTH,
    StoredLeaves,
    ids_of,
    packed,
    put,
    united,
)
from stampede.proofs.ranges import digests_of
from stampede.store.objects.memory import MemoryObjects
from tests.support.store.watched_objects import Watched

COUNT = 40_000


@pytest.fixture(scope="module")
def entries() -> np.ndarray:
    """Entries of ten subtrees; the ids are even, many have several entries, one has a subtree."""
    chance = np.random.default_rng(1)
    made = chance.integers(0, 256, (COUNT, WIDTH), np.uint8)
    ids = 2 * chance.integers(1, COUNT // 2, COUNT).astype(">i8")
    ids[: SUBTREE + 500] = COUNT
    made[:, :ID_BYTES] = ids.view(np.uint8).reshape(-1, ID_BYTES)
    return united(made)


@pytest.fixture
def objects(entries: np.ndarray) -> Watched:
    watched = Watched(MemoryObjects())
    put(watched, "leaves", packed(entries))
    return watched


def stored(objects: Watched, entries: np.ndarray) -> StoredLeaves:
    return StoredLeaves(objects, "leaves", len(entries), packed(entries).root)


def expected(entries: np.ndarray, first: int, until: int | None, most: int) -> np.ndarray:
    ids = ids_of(entries)
    return entries[(ids >= first) & (ids < (1 << 62 if until is None else until))][:most]


def test_any_part_is_what_it_is_of_all(objects: Watched, entries: np.ndarray) -> None:
    read = stored(objects, entries)
    chance = np.random.default_rng(2)
    heads = read.read_heads().tolist()
    bounds = [0, 1, 2, COUNT, COUNT + 1, 1 << 40, *heads, *(each + 1 for each in heads)]
    bounds += chance.integers(0, COUNT, 20).tolist()
    for first in bounds:
        until = chance.choice([first + 1, first + 1500, *bounds])
        most = chance.choice([1, 100, SUBTREE, COUNT])
        for asked in (first, int(until), int(most)), (first, None, int(most) // 4):
            assert np.array_equal(read.between(*asked), expected(entries, *asked)), asked


def test_a_part_takes_one_request_and_few_bytes(objects: Watched, entries: np.ndarray) -> None:
    read = stored(objects, entries)
    read.read_heads()
    calls, before = objects.count("get"), objects.got
    assert len(read.between(1000, 1010, COUNT))
    assert objects.count("get") == calls + 1
    assert objects.got - before <= 2 * SUBTREE * WIDTH
    before = objects.got
    assert len(read.between(0, None, 10)) == 10
    assert objects.got - before <= 3 * SUBTREE * WIDTH


def test_the_digests_of_ranges_take_a_piece_at_a_time(
    objects: Watched, entries: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins = [2, 500, 501, 20_000, COUNT, COUNT + 2]
    whole = digests_of([entries], begins)
    monkeypatch.setattr(leaves, "PIECE", 2 * SUBTREE * WIDTH)
    pieces = [*stored(objects, entries).pieces()]
    assert max(map(len, pieces)) == 2 * SUBTREE
    assert np.array_equal(np.concatenate(pieces), entries)
    assert digests_of(pieces, begins) == whole
    assert digests_of(iter(pieces), []) == [packed(entries).root]


def test_a_damaged_subtree_is_never_sent(objects: Watched, entries: np.ndarray) -> None:
    data = bytearray(objects.get("leaves"))
    data[5 * SUBTREE * WIDTH - 1] ^= 1
    objects.put("leaves", bytes(data))
    read = stored(objects, entries)
    heads = read.read_heads().tolist()
    assert len(read.between(0, heads[1], COUNT))
    with pytest.raises(Damaged, match="a damaged subtree"):
        read.between(heads[4] + 1, heads[5], COUNT)
    with pytest.raises(Damaged, match="a damaged subtree"):
        digests_of(read.pieces(), [])
    objects.put("leaves", bytes(data)[: 2 * SUBTREE * WIDTH + 3])
    with pytest.raises(Damaged, match="a damaged subtree"):
        read.between(heads[1] + 1, None, COUNT)


def test_a_night_without_entries_has_no_part() -> None:
    objects = Watched(MemoryObjects())
    nothing = leaves.no_entries()
    put(objects, "leaves", packed(nothing))
    read = stored(objects, nothing)
    assert len(read.between(0, None, 10)) == 0
    assert read.of_alert(1) == []
    assert [*read.pieces()] == []
    assert digests_of(read.pieces(), [5]) == digests_of([nothing], [5])
