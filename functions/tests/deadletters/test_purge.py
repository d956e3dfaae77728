"""What a purge removes, and that it loses nothing else, wherever it dies."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.deadletters.purge import Purged, purge
from stampede.deadletters.reader import DeadLetterReader, is_stored, stored_offsets
from stampede.errors import StoreDown
from stampede.store import ledger
from stampede.store.memory import MemoryObjects
from stampede.store.objects import ObjectInfo, Objects
from tests.deadletters.letters import event, ids, put_letters, put_run


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


def purge_stored(objects: Objects) -> Purged:
    stored = stored_offsets(objects)
    reader = DeadLetterReader(objects)
    done = purge(objects, reader, lambda *at: is_stored(stored, *at))
    reader.check()
    return done


def test_a_purge_removes_stored_letters_only(objects) -> None:
    whole = put_letters(objects, event(1), event(2))
    part = put_letters(objects, event(3), event(4), event(None))
    none = put_letters(objects, event(5))
    other = put_letters(objects, event(1), table="detections")
    put_run(objects, 1, 2, 3)
    before = ledger.entries(ledger.accounts(objects))
    assert purge_stored(objects) == Purged(3, 4)
    assert ledger.entries(ledger.accounts(objects)) == before
    assert ledger.dead_lettered(objects, "cutouts").intervals("alerts", 0) == [(4, 6)]
    keys = {info.key for info in objects.list("deadletters/")}
    assert {whole, part} & keys == set()
    assert {none, other} < keys
    assert len(keys) == 3
    left = {letter.id: letter for letter in DeadLetterReader(objects).letters()}
    assert left["cutouts/alerts/0/4"].data == event(4).data
    assert left["cutouts/alerts/0/4"].attributes == event(4).attributes
    assert purge_stored(objects) == Purged(0, 4)
    assert {info.key for info in objects.list("deadletters/")} == keys


class Dying(MemoryObjects):
    """Fails after so many calls, as if the process were killed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls_left = 1 << 30

    def _call(self) -> None:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise StoreDown("killed")

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._call()
        super().put(key, data)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self._call()
        return super().get(key, start, length)

    def delete(self, key: str) -> None:
        self._call()
        super().delete(key)


@given(
    st.lists(st.sets(st.integers(0, 12), min_size=1), min_size=1, max_size=5),
    st.sets(st.integers(0, 12)),
    st.integers(0, 12),
)
def test_a_purge_that_dies_anywhere_loses_nothing(
    batches: list[set[int]], done: set[int], calls: int
) -> None:
    objects = Dying()
    for batch in batches:
        put_letters(objects, *map(event, batch))
    put_run(objects, *done)
    before = ledger.entries(ledger.accounts(objects))
    stays = {f"cutouts/alerts/0/{n}" for n in set().union(*batches) - done}
    stored = stored_offsets(objects)
    reader = DeadLetterReader(objects)
    objects.calls_left = calls
    try:
        purge(objects, reader, lambda *at: is_stored(stored, *at))
    except StoreDown:
        objects.calls_left = 1 << 30
        assert ledger.entries(ledger.accounts(objects)) == before
        assert stays <= set(ids(objects))
    objects.calls_left = 1 << 30
    purge_stored(objects)
    assert set(ids(objects)) == stays
    assert ledger.entries(ledger.accounts(objects)) == before


class Purging(MemoryObjects):
    """A purge runs in the middle of a listing, before its object number `at`."""

    def __init__(self) -> None:
        super().__init__()
        self.at = -1

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        key = after
        for number in itertools.count():
            if number == self.at and prefix.startswith("deadletters/"):
                self.at = -1
                purge(
                    self,
                    DeadLetterReader(self),
                    lambda _, place: place is not None and place.offset < 9,
                )
            info = next(super().list(prefix, key), None)
            if info is None:
                return
            yield info
            key = info.key


@pytest.mark.parametrize("at", range(7))
def test_the_ledger_misses_nothing_during_a_purge(at: int) -> None:
    objects = Purging()
    for n in range(6):
        put_letters(objects, event(n), event(10 + n), event(20 + n))
    objects.at = at
    held = ledger.dead_lettered(objects, "cutouts")
    assert objects.at == -1
    assert set(range(10, 16)) | set(range(20, 26)) <= {
        n for start, end in held.intervals("alerts", 0) for n in range(start, end)
    }


def test_a_store_that_changes_bytes_makes_the_purge_delete_nothing() -> None:
    class Lying(MemoryObjects):
        def put(self, key: str, data: bytes | memoryview) -> None:
            super().put(key, bytes(data[:-1]) if lying else data)

    lying, objects = False, Lying()
    key = put_letters(objects, event(1), event(2))
    put_run(objects, 1)
    lying = True
    with pytest.raises(StoreDown, match="nothing was deleted"):
        purge_stored(objects)
    infos: list[ObjectInfo] = list(objects.list(key))
    assert len(infos) == 1
