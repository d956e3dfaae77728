"""A purge removes stored dead letters, and loses no other letter wherever it dies."""

import itertools
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from stampede.deadletters.purge import Purged, purge
from stampede.deadletters.reader import DeadLetterReader
from stampede.errors import StoreDown
from stampede.events.cloudevents.event import Event
from stampede.store.integrity import ledger
from stampede.store.integrity.dead_letter_offsets import dead_lettered
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import ObjectInfo, Objects
from tests.support.events.dead_letters import event, ids, put_letters, put_run, stored_alerts
from tests.support.store.watched_objects import Changed, Watched


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


def purge_stored(objects: Objects) -> Purged:
    reader = DeadLetterReader(objects)
    done = purge(objects, reader, are_stored(objects))
    reader.check()
    return done


def are_stored(objects: Objects) -> Callable[[str, Sequence[Event]], list[bool]]:
    stored = stored_alerts(objects)
    return lambda table, events: [each.stored for each in stored.of_events(table, events)]


def test_a_purge_removes_stored_letters_only(objects) -> None:
    all_stored = put_letters(objects, event(1), event(2))
    partly_stored = put_letters(objects, event(3), event(4), event(None))
    none_stored = put_letters(objects, event(5))
    other_table = put_letters(objects, event(1), table="detections")
    put_run(objects, 1, 2, 3)
    before = ledger.entries(ledger.accounts(objects))
    assert purge_stored(objects) == Purged(3, 4)
    assert ledger.entries(ledger.accounts(objects)) == before
    assert dead_lettered(objects, "cutouts").intervals("alerts", 0) == [(4, 6)]
    keys = {info.key for info in objects.list("deadletters/")}
    assert {all_stored, partly_stored} & keys == set()
    assert {none_stored, other_table} < keys
    assert len(keys) == 3
    remaining = {letter.id: letter for letter in DeadLetterReader(objects).letters()}
    assert remaining["cutouts/alerts/0/4"].data == event(4).data
    assert remaining["cutouts/alerts/0/4"].attributes == event(4).attributes
    assert purge_stored(objects) == Purged(0, 4)
    assert {info.key for info in objects.list("deadletters/")} == keys


@pytest.mark.parametrize("table", ["cutouts", "detections"])
def test_an_offset_that_another_alert_has_does_not_count_as_stored(objects, table: str) -> None:
    """As after a topic was made anew: its offsets begin at 0 again, with other alerts."""
    put_letters(objects, event(1), event(2), table=table)
    undecodable = Event(event(3).attributes, b"no alert")
    put_letters(objects, undecodable, table=table)
    put_run(objects, 1, 2, 3, table=table, other=100)
    assert purge_stored(objects) == Purged(0, 3)
    put_run(objects, 2, table=table)
    assert purge_stored(objects) == Purged(1, 2)
    found = [each for _, each in stored_alerts(objects).of(DeadLetterReader(objects).letters())]
    assert [each.stored for each in found] == [False, False]
    assert sorted(each.undecodable for each in found) == [False, True]


def test_a_purge_counts_letters_as_a_list_does(objects) -> None:
    """A letter in two objects is one letter."""
    put_letters(objects, event(1), event(2), event(5))
    put_letters(objects, event(2), event(3), event(5))
    put_run(objects, 1, 2)
    assert len(ids(objects)) == 4
    assert purge_stored(objects) == Purged(2, 2)
    assert len(ids(objects)) == 2


@examples(max_examples=2 * examples.default.max_examples // 5)
@given(
    st.lists(st.sets(st.integers(0, 12), min_size=1), min_size=1, max_size=5),
    st.sets(st.integers(0, 12)),
    st.integers(0, 24),  # a purge of five objects makes at most 23 requests
)
def test_a_purge_that_dies_anywhere_loses_nothing(
    batches: list[set[int]], done: set[int], requests: int
) -> None:
    objects = MemoryObjects()
    for batch in batches:
        put_letters(objects, *map(event, batch))
    put_run(objects, *done)
    before = ledger.entries(ledger.accounts(objects))
    stays = {f"cutouts/alerts/0/{n}" for n in set().union(*batches) - done}
    stored = are_stored(objects)

    def die(number: int) -> None:
        if number >= requests:
            raise StoreDown("killed")

    dying = Watched(objects, die)
    try:
        purge(dying, DeadLetterReader(dying), stored)
    except StoreDown:
        assert ledger.entries(ledger.accounts(objects)) == before
        assert stays <= set(ids(objects))
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
                    lambda _, events: [event.position.offset < 9 for event in events],
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
    held = dead_lettered(objects, "cutouts")
    assert objects.at == -1
    assert set(range(10, 16)) | set(range(20, 26)) <= {
        n for start, end in held.intervals("alerts", 0) for n in range(start, end)
    }


def test_a_store_that_changes_bytes_makes_the_purge_delete_nothing() -> None:
    objects = MemoryObjects()
    key = put_letters(objects, event(1), event(2))
    put_run(objects, 1)
    with pytest.raises(StoreDown, match="nothing was deleted"):
        purge_stored(Changed(objects, write=lambda data: data[:-1]))
    infos: list[ObjectInfo] = list(objects.list(key))
    assert len(infos) == 1
