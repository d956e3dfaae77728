"""Lost runs are told from merged ones, with few requests, while the first site goes on merging."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from stampede.deadletters.dead_letter import write_letters
from stampede.store.compaction.compact import Policy, compact
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.replication.site_differences import LostAtFirst, differences
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.checkpoint_files import put_checkpoint
from stampede.store.tables.table import Table
from tests.support.events import dead_letters
from tests.support.store.rows import many
from tests.support.store.watched_objects import Watched

START = datetime(2026, 11, 20, tzinfo=UTC)
ROWS = many(2000)


def append(store: Objects, number: int) -> None:
    """Run n has the offsets from 50 n on."""
    offsets = range(50 * number, 50 * number + 50)
    coverage = Coverage.of({("alerts", 0): offsets})
    Table(store, DETECTIONS, threads=1).append(ROWS.slice(offsets[0], 50), coverage)


def merge(store: Objects) -> None:
    for _ in range(2):
        compact(Table(store, DETECTIONS, threads=1), START, Policy(grace=timedelta(), major=True))


def gone(first: Objects, second: Objects) -> list[ObjectInfo]:
    found = [each.second for each in differences(first, second) if each.first is None]
    return [info for info in found if info]


@pytest.fixture
def sites() -> tuple[MemoryObjects, MemoryObjects]:
    """The first site has merged twelve runs, of which the second has copies, and has ten others."""
    first, second = MemoryObjects(lambda: START), MemoryObjects(lambda: START)
    for number in range(12):
        append(first, number)
        append(second, number)
    merge(first)
    for number in range(12, 22):
        append(first, number)
    return first, second


def test_the_footers_of_the_first_site_are_read_once_for_all_questions(
    sites: tuple[MemoryObjects, MemoryObjects],
) -> None:
    first, second = sites
    watched = Watched(first)
    lost = LostAtFirst(watched, second, lambda key: False)
    asked = gone(first, second)
    assert len(asked) == 12
    assert not lost.lost(asked[0])
    before = watched.count("get")
    assert not any(lost.lost(info) for info in asked[1:])
    # Of the merged run, which holds the rows, its index and a row group, unless they are cached.
    assert watched.count("get") - before <= 2
    lost.close()


def test_what_the_first_site_merges_meanwhile_is_not_lost(
    sites: tuple[MemoryObjects, MemoryObjects],
) -> None:
    first, second = sites
    append(second, 30)
    lost = LostAtFirst(first, second, lambda key: False)
    asked = {info.key: lost.lost(info) for info in gone(first, second)[:1]}
    merge(first)
    asked |= {info.key: lost.lost(info) for info in gone(first, second)}
    assert len(asked) == 13
    assert sum(asked.values()) == 1  # run 30
    lost.close()


def test_what_was_accepted_is_lost_and_a_letter_that_was_purged_after_it_is_not() -> None:
    first, second = MemoryObjects(), MemoryObjects()
    for site in (first, second):
        dead_letters.put_letters(site, dead_letters.event(1), table="detections")
    dead_letters.accept(second)
    [decision, letter] = second.list("deadletters/")
    assert LostAtFirst(first, second, lambda key: False).lost(decision)
    first.put(decision.key, second.get(decision.key))
    first.delete(letter.key)
    assert not LostAtFirst(first, second, lambda key: False).lost(letter)
    first.delete(decision.key)
    assert LostAtFirst(first, second, lambda key: False).lost(letter)


@pytest.mark.parametrize("stored", [True, False])
def test_dead_letters_are_lost_though_a_checkpoint_says_that_they_are_stored(
    sites: tuple[MemoryObjects, MemoryObjects], stored: bool
) -> None:
    """A checkpoint that invents offsets hides no loss; the footers decide, and few are read."""
    first, second = sites
    letter = dead_letters.event(7 if stored else 5000, topic="alerts")
    second.put(*write_letters("detections", [letter]))
    [info] = second.list("deadletters/")
    invented = Coverage.of({("alerts", 0): range(6000)})
    parts = Table(first, DETECTIONS, threads=1).listed()
    chosen = parts[0] if not stored else parts[-1]
    put_checkpoint(
        first,
        DETECTIONS,
        [replace(part, coverage=invented) if part.key == chosen.key else part for part in parts],
    )
    watched = Watched(first)
    lost = LostAtFirst(watched, second, lambda key: False)
    assert lost.lost(info) is not stored
    assert watched.count("get") <= 1 + 2  # the checkpoint, and the runs that may hold the letter
    lost.close()
