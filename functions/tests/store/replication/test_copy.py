"""Copies are whole, checked at both ends, and hold a few pieces of an object at a time."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.store.compaction.compact import Policy, compact
from stampede.store.integrity.digests import same
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.replication import copy as module
from stampede.store.replication.copy import AHEAD, PIECE, Copied, Copier
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from tests.support.store.rows import many
from tests.support.store.watched_objects import Changed, Watched

STEP = 6 << 20


@pytest.fixture(autouse=True)
def smaller_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", STEP)
    monkeypatch.setattr(module, "WHOLE", STEP)


def data_of(size: int) -> bytes:
    return (bytes(range(256)) * (size // 256 + 1))[:size]


def copier(source, target, most_bytes: int = 3 * STEP) -> Copier:
    return Copier(source, target, most_bytes)


@pytest.mark.parametrize("size", [0, 1, STEP, STEP + 1, 3 * STEP])
def test_a_copy_is_the_same_bytes(size: int) -> None:
    source, target = MemoryObjects(), MemoryObjects()
    source.put("packs/60000/a", data_of(size))
    copying = copier(source, target)
    assert copying.copy("packs/60000/a") == Copied(size, True)
    assert target.get("packs/60000/a") == data_of(size)


@pytest.mark.parametrize("size", [0, 5, 2 * STEP + 1])
@pytest.mark.parametrize("kinds", ["mm", "md", "dm", "dd"])
def test_an_object_at_the_target_is_not_copied_again(tmp_path: Path, kinds: str, size: int) -> None:
    """For every kind of etag: a digest, a digest of parts, or neither."""
    source, inner = (
        MemoryObjects() if kind == "m" else DirectoryObjects(tmp_path / str(number))
        for number, kind in enumerate(kinds)
    )
    source.put("a", data_of(size))
    target = Watched(inner)
    copying = copier(source, target)
    assert copying.copy("a").moved
    assert same(source.head("a"), target.head("a"))
    target.calls.clear()
    assert copying.copy("a") == Copied(size, False)
    assert {operation for operation, _ in target.calls} == {"head"}


def test_a_missing_object_is_not_found() -> None:
    with pytest.raises(NotFound):
        copier(MemoryObjects(), MemoryObjects()).copy("a")


def name_of(data: bytes) -> str:
    return f"packs/60000/{sha256(data).hexdigest()[:32]}.parquet"


def flip_a_bit(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("size", [1000, 2 * STEP])
@pytest.mark.parametrize("named", [True, False])
def test_a_damaged_object_is_not_copied(size: int, named: bool) -> None:
    source, target = Changed(MemoryObjects(), read=flip_a_bit), MemoryObjects()
    key = name_of(data_of(size)) if named else "tables/cutouts/0001-" + 32 * "0" + ".parquet"
    source.put(key, data_of(size))
    with pytest.raises(Damaged, match=key):
        copier(source, target).copy(key)
    assert list(target.list("")) == []


def test_the_name_shows_damage_that_the_etag_does_not(tmp_path: Path) -> None:
    source, target = DirectoryObjects(tmp_path), MemoryObjects()
    source.put(name_of(b"as it was"), b"as it is.")
    with pytest.raises(Damaged):
        copier(source, target).copy(name_of(b"as it was"))


@pytest.mark.parametrize("size", [1000, 2 * STEP])
def test_a_copy_that_was_stored_wrongly_is_an_error(size: int) -> None:
    source = MemoryObjects()
    source.put("a", data_of(size))
    target = Changed(MemoryObjects(), write=lambda data: bytes(len(data)))
    with pytest.raises(StoreDown, match="not what was sent"):
        copier(source, target).copy("a")


@pytest.mark.parametrize("die_at", range(8))
def test_a_copy_that_is_killed_leaves_nothing_or_all(die_at: int) -> None:
    """The next copy completes the object."""
    source, target = MemoryObjects(), MemoryObjects()
    source.put("a", data_of(3 * STEP))

    def die(number: int) -> None:
        if number == die_at:
            raise StoreDown("killed")

    dying = Watched(target, die)
    try:
        copier(source, dying).copy("a")
    except StoreDown:
        assert len(dying.calls) == die_at + 1
    assert [info.size for info in target.list("")] in ([], [3 * STEP])
    copier(source, target).copy("a")
    assert target.get("a") == data_of(3 * STEP)


def test_an_object_deleted_during_its_copy_is_not_found() -> None:
    source, target = MemoryObjects(), MemoryObjects()
    source.put("a", data_of(4 * STEP))
    going = Watched(source, lambda number: source.delete("a") if number == 3 else None)
    with pytest.raises(NotFound):
        copier(going, target).copy("a")
    assert list(target.list("")) == []


class Level:
    """A number that threads raise and lower, and its maximum."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        with self._lock:
            self.now += number
            self.most = max(self.most, self.now)


def slowly(data: bytes) -> bytes:
    time.sleep(0.02)
    return data


@pytest.mark.long
def test_few_pieces_are_held_at_a_time() -> None:
    """The target is slow: the source must not run ahead of it."""
    pieces = Level()
    inner = MemoryObjects()
    inner.put("a", data_of(12 * STEP))
    source = Watched(inner, lambda number: pieces.add(source.calls[number][0] == "get"))
    target = Changed(MemoryObjects(), write=slowly, after_write=lambda size: pieces.add(-1))
    copier(source, target).copy("a")
    assert 1 < pieces.most <= AHEAD + 1


@pytest.mark.long
@pytest.mark.parametrize("size", [STEP, 3 * STEP])
def test_many_copies_hold_at_most_their_budget(size: int) -> None:
    """Whole or in pieces; an object larger than the budget is copied too."""
    held = Level()

    def hold(data: bytes) -> bytes:
        held.add(len(data))
        return data

    source = Changed(MemoryObjects(), read=hold)
    target = Changed(MemoryObjects(), write=slowly, after_write=lambda size: held.add(-size))
    keys = [f"alerts/{number}" for number in range(8)]
    for key in keys:
        source.put(key, data_of(size))
    copying = copier(source, target, 6 * STEP)
    with ThreadPoolExecutor(len(keys)) as pool:
        assert all(copied.moved for copied in pool.map(copying.copy, keys))
    assert size < held.most <= 6 * STEP
    assert copier(source, MemoryObjects(), 1).copy(keys[0]).moved


@pytest.mark.parametrize("size", [0, 1000, STEP])
def test_a_small_object_takes_at_most_three_requests_at_each_end(size: int) -> None:
    """To a far site each request is a round trip."""
    inner = MemoryObjects()
    inner.put("a", data_of(size))
    source, target = Watched(inner), Watched(MemoryObjects())
    assert copier(source, target).copy("a").moved
    assert [operation for operation, _ in source.calls] == ["head", "get"]
    assert [operation for operation, _ in target.calls] == ["head", "put", "head"]


@pytest.mark.integration
def test_between_buckets(bucket, ceph) -> None:
    source = open_objects(bucket)
    target = open_objects(bucket.model_copy(update={"store": bucket.store + "-2"}))
    target.ensure_bucket()
    for size in (0, 10, STEP, 2 * STEP + 5):
        source.put(f"a/{size}", data_of(size))
        assert copier(source, target).copy(f"a/{size}") == Copied(size, True)
        assert target.get(f"a/{size}") == data_of(size)
        assert copier(source, target).copy(f"a/{size}") == Copied(size, False)
    assert all(map(same, source.list(""), target.list("")))


def test_pieces_are_large_enough_for_s3() -> None:
    assert PIECE >= 5 << 20


@pytest.mark.parametrize("merged", [False, True])
def test_a_good_copy_is_never_overwritten_by_a_damaged_one(merged: bool) -> None:
    source, target, key = MemoryObjects(), MemoryObjects(), stored_run(merged)
    good = key[1]
    for store in (source, target):
        store.put(key[0], good)
    source.put(key[0], flipped(good, 300))
    with pytest.raises(Damaged):
        copier(source, target).copy(key[0])
    assert target.get(key[0]) == good
    source.put(key[0], good)
    target.put(key[0], flipped(good, 300))
    assert copier(source, target).copy(key[0]).moved
    assert target.get(key[0]) == good
    for store in (source, target):
        store.put(key[0], flipped(good, 300 if store is source else 310))
    with pytest.raises(Damaged):
        copier(source, target).copy(key[0])
    assert target.get(key[0]) == flipped(good, 310)


def test_a_damaged_merged_run_is_not_copied() -> None:
    source, target = MemoryObjects(), MemoryObjects()
    key, good = stored_run(True)
    source.put(key, flipped(good, 300))
    with pytest.raises(Damaged):
        copier(source, target).copy(key)
    assert not list(target.list(""))


def test_two_objects_that_cannot_be_told_apart_are_left_as_they_are() -> None:
    source, target = MemoryObjects(), MemoryObjects()
    source.put("notes", b"one")
    target.put("notes", b"two")
    with pytest.raises(Damaged, match="notes"):
        copier(source, target).copy("notes")
    assert target.get("notes") == b"two"


def stored_run(merged: bool) -> tuple[str, bytes]:
    store = MemoryObjects()
    table = Table(store, DETECTIONS, threads=1)
    for number in range(2):
        table.append(many(100, 3, number), Coverage.of({("alerts", 0): [number]}))
    compact(table, datetime.now(UTC), Policy(fanout=2))
    [info] = store.list(f"tables/detections/{merged:04}") if merged else [table.listed()[0].object]
    return info.key, store.get(info.key)


def flipped(data: bytes, byte: int) -> bytes:
    return data[:byte] + bytes([data[byte] ^ 16]) + data[byte + 1 :]
