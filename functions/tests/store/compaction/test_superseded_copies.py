"""Damaged copies at the second site go only if the first site proves that it merged their rows."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from stampede.errors import StoreDown
from stampede.store.compaction.compact import Policy, compact
from stampede.store.compaction.garbage_collection import unneeded_at_second_site
from stampede.store.compaction.superseded_copies import superseded_copies
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.replication.replica import Replica
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.checkpoint_files import put_checkpoint
from stampede.store.tables.table import Table
from tests.support.store.rows import many
from tests.support.store.watched_objects import Failing

START = datetime(2026, 11, 20, tzinfo=UTC)
GRACE = timedelta(minutes=5)
FOLDER = "tables/detections/"


def store(*numbers: int) -> MemoryObjects:
    """A site with the runs of these numbers; run n has the offsets from 50 n on."""
    made = MemoryObjects(lambda: START)
    for number in numbers:
        offsets = range(50 * number, 50 * number + 50)
        rows = many(400).slice(50 * number, 50)
        Table(made, DETECTIONS, threads=1).append(rows, Coverage.of({("alerts", 0): offsets}))
    return made


def merged(site: MemoryObjects) -> MemoryObjects:
    """The site after its runs were merged into one, and deleted."""
    for _ in range(2):
        compact(Table(site, DETECTIONS, threads=1), START, Policy(grace=timedelta(), major=True))
    return site


def found(first: Objects, second: Objects, later: timedelta = GRACE) -> list[str]:
    one, other = Table(first, DETECTIONS, threads=1), Table(second, DETECTIONS, threads=1)
    return list(superseded_copies(one, other, START + later, GRACE, {}))


def damage(site: Objects, key: str, at: int) -> None:
    data = bytearray(site.get(key))
    data[at] ^= 8
    site.put(key, bytes(data))


@pytest.mark.parametrize("at", [60, -40])  # in a page, in the footer
def test_a_damaged_copy_of_a_merged_run_goes_after_the_grace(at: int) -> None:
    second = store(1)
    [bad] = [info.key for info in second.list(FOLDER)]
    assert found(merged(store(0, 1, 2)), second) == []  # it is whole
    damage(second, bad, at)
    first = merged(store(0, 1, 2))
    Replica(first, second, 1).catch_up()
    assert found(first, second, timedelta(minutes=4)) == []
    assert found(first, second) == [bad]


def test_what_is_remembered_goes_once_the_second_site_holds_its_offsets() -> None:
    """Before that, its memory would name the copy as a run that somebody deleted."""
    second = store(1)
    [bad] = [info.key for info in second.list(FOLDER)]
    table = Table(second, DETECTIONS, threads=1)
    table.refresh()
    put_checkpoint(second, DETECTIONS, table.listed())
    damage(second, bad, -40)
    first = merged(store(0, 1, 2))
    assert found(first, second) == []
    Replica(first, second, 1).catch_up()
    assert found(first, second) == [bad]
    second.delete(bad)
    assert Table(second, DETECTIONS).quarantined() == {}


@pytest.mark.parametrize("at", [60, -40])
def test_it_stays_if_the_first_site_lacks_its_offsets(at: int) -> None:
    second = store(1)
    [bad] = [info.key for info in second.list(FOLDER)]
    damage(second, bad, at)
    assert found(merged(store(0, 2)), second) == []
    assert found(store(), second) == []


def test_it_stays_if_the_first_site_has_it_or_has_damage_itself() -> None:
    second = store(1)
    [bad] = [info.key for info in second.list(FOLDER)]
    damage(second, bad, -40)
    assert found(store(0, 1, 2), second) == []
    first = merged(store(0, 1, 2))
    first.put(f"{FOLDER}0000-{'0' * 32}.parquet", b"garbage " * 100)
    assert found(first, second) == []


def test_it_stays_if_only_a_checkpoint_says_that_the_first_site_holds_its_offsets() -> None:
    first, second = store(0, 2), store(1)
    [bad] = [info.key for info in second.list(FOLDER)]
    Replica(first, second, 1).catch_up()
    table = Table(second, DETECTIONS, threads=1)
    table.refresh()
    claim = Coverage.of({("alerts", 0): range(10)})
    parts = [replace(p, coverage=claim) if p.key == bad else p for p in table.listed()]
    put_checkpoint(second, DETECTIONS, parts)
    data = bytearray(second.get(bad))
    data[60] ^= 8
    second._objects[bad] = bytes(data), second.head(bad)  # its etag stays, as on a bad disk
    assert found(first, second) == []


@pytest.mark.parametrize("given", [0, 1])  # how often, before it is withheld
def test_a_copy_that_the_store_does_not_give_is_named_and_stops_nothing(given: int) -> None:
    """A checkpoint knows it, so no listing says that anything is wrong. It may be whole."""
    first, second = merged(store(0, 1)), store(0, 1)
    for info in store(2).list(FOLDER):
        first.put(info.key, store(2).get(info.key))
    merged(first)  # for the second time: no run there has them as inputs
    withheld, bad = [info.key for info in second.list(FOLDER)]
    damage(second, bad, 60)
    if given:
        damage(second, withheld, 60)
    Replica(first, second, 1).catch_up()
    table = Table(second, DETECTIONS, threads=1)
    put_checkpoint(second, DETECTIONS, table.listed())
    asked: list[str] = []

    def refuse(key: str, _: int) -> bool:
        asked.append(key)
        return key == withheld and asked.count(withheld) > given

    down = Failing(second, StoreDown, refuse)
    named: list[str] = []
    assert list(unneeded_at_second_site(first, down, START + GRACE, GRACE, named.append)) == [bad]
    assert named == [withheld]
    down = Failing(second, StoreDown)
    with pytest.raises(StoreDown):
        list(unneeded_at_second_site(first, down, START + GRACE, GRACE))


def test_a_damaged_run_of_the_first_site_that_a_checkpoint_hides_is_named() -> None:
    first, second = merged(store(0, 1, 2)), store(1)
    [bad] = [info.key for info in second.list(FOLDER)]
    damage(second, bad, 60)
    [run] = [info.key for info in first.list(FOLDER)]
    put_checkpoint(first, DETECTIONS, Table(first, DETECTIONS, threads=1).listed())
    down = Failing(first, StoreDown, lambda key, _: key == run)
    named: list[str] = []
    assert list(unneeded_at_second_site(down, second, START + GRACE, GRACE, named.append)) == []
    assert named == [run]
