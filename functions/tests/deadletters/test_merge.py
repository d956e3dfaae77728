"""Merging dead letters makes few objects of many, and loses no letter wherever it dies."""

import pytest

from stampede.deadletters import merge
from stampede.deadletters.merge import merge_letters
from stampede.deadletters.purge import purge
from stampede.deadletters.reader import DeadLetterReader
from stampede.errors import StoreDown
from stampede.store.integrity.dead_letter_offsets import dead_lettered
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from tests.support.events.dead_letters import event, ids, put_letters
from tests.support.store.watched_objects import BeforeGet, Changed, Watched

LETTERS = 9


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "MOST_OBJECTS", 4)


def letters(objects: Objects) -> dict[str, tuple[bytes, dict]]:
    reader = DeadLetterReader(objects)
    found = {letter.id: (letter.data, letter.attributes) for letter in reader.letters()}
    reader.check()
    return found


def filled() -> MemoryObjects:
    objects = MemoryObjects()
    for offset in range(LETTERS):
        put_letters(objects, event(offset))
    return objects


def count(objects: Objects, table: str = "cutouts") -> int:
    return len(list(objects.list(f"deadletters/{table}/")))


def test_many_objects_become_one_with_the_same_letters() -> None:
    objects = filled()
    put_letters(objects, event(3), event(None))  # a letter that another object has too
    for offset in range(4):
        put_letters(objects, event(offset), table="detections")
    before, offsets = letters(objects), dead_lettered(objects, "cutouts")
    assert merge_letters(objects, "cutouts") == LETTERS + 1
    assert merge_letters(objects, "detections") == 0  # as many as may stay
    assert (count(objects), count(objects, "detections")) == (1, 4)
    assert letters(objects) == before
    assert dead_lettered(objects, "cutouts") == offsets
    assert len(ids(objects, "cutouts")) == LETTERS + 1  # each once
    assert merge_letters(objects, "cutouts") == 0


def test_a_merged_object_has_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = filled()
    (first, *_) = objects.list("deadletters/")
    monkeypatch.setattr(merge, "MERGED_BYTES", 5 * first.size // 2)
    before = letters(objects)
    assert merge_letters(objects, "cutouts") == LETTERS
    assert count(objects) == 3
    assert letters(objects) == before


def test_large_and_damaged_objects_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = filled()
    damaged = put_letters(objects, event(77))
    objects.put(damaged, objects.get(damaged)[:-20] + bytes(20))
    large = put_letters(objects, *map(event, range(100, 140)))
    monkeypatch.setattr(merge, "SMALL_BYTES", objects.head(large).size)
    assert merge_letters(objects, "cutouts") == LETTERS
    assert count(objects) == 3
    assert {damaged, large} < {info.key for info in objects.list("deadletters/")}


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("write", range(LETTERS + 1))
def test_no_letter_is_lost_wherever_it_dies(write: int, torn: bool) -> None:
    objects = filled()
    before, offsets = letters(objects), dead_lettered(objects, "cutouts")
    with pytest.raises(StoreDown):
        merge_letters(Watched(objects, crash_at=write, torn=torn), "cutouts")
    assert letters(objects) == before
    assert dead_lettered(objects, "cutouts") == offsets
    merge_letters(objects, "cutouts")
    assert letters(objects) == before


def test_a_store_that_changes_bytes_makes_it_delete_nothing() -> None:
    objects = filled()
    before = count(objects)
    with pytest.raises(StoreDown, match="nothing was deleted"):
        merge_letters(Changed(objects, write=lambda data: data[:-1]), "cutouts")
    assert count(objects) == before + 1


@pytest.mark.parametrize("at", range(LETTERS))
def test_a_reader_finds_letters_that_are_merged_under_its_hands(at: int) -> None:
    objects = filled()
    before = letters(objects)
    gets = iter(range(10**6))

    def merge_once(key: str, start: int) -> None:
        if next(gets) == at:
            merge_letters(objects, "cutouts")

    assert letters(BeforeGet(objects, merge_once)) == before
    assert count(objects) == 1


def test_a_merge_and_a_purge_at_one_time_lose_no_letter() -> None:
    """A merge was killed after it had written; then a purge and the next merge overlap.

    If the next merge wrote the same name again, the purge would delete it as what it had read.
    """
    objects = filled()
    before = letters(objects)
    with pytest.raises(StoreDown):
        merge_letters(Watched(objects, crash_at=1), "cutouts")
    merged = False

    class Between(Watched):
        def delete(self, key: str) -> None:
            nonlocal merged
            if not merged:
                merged = True
                merge_letters(objects, "cutouts")
            super().delete(key)

    between = Between(objects)
    reader = DeadLetterReader(between)
    purge(between, reader, lambda _, events: [event.position.offset == 0 for event in events])
    assert merged
    assert before.keys() - letters(objects).keys() <= {"cutouts/alerts/0/0"}
