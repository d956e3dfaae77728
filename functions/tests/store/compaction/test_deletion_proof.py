"""What a run holds is asked of the footers: checkpoints may be wrong, objects gone or damaged."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from stampede.errors import StoreDown
from stampede.store.compaction.compact import Policy, Report, compact, merge
from stampede.store.compaction.deletion_proof import DeletionProof
from stampede.store.compaction.garbage_collection import GarbageCollector, unneeded_at_second_site
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.replication.replica import Replica
from stampede.store.runs.reader import RunReader
from stampede.store.runs.run import RunInfo, by_name, live
from stampede.store.runs.run_name import RunName
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.checkpoint_files import put_checkpoint
from stampede.store.tables.table import Table
from tests.support.store.rows import many
from tests.support.store.watched_objects import Failing, Watched

START = datetime(2026, 11, 20, tzinfo=UTC)
LATER = START + timedelta(hours=1)
GRACE = timedelta(minutes=5)
FOLDER = "tables/detections/"
ROWS = many(20_000)


def site() -> MemoryObjects:
    return MemoryObjects(lambda: START)


def listed(store: Objects) -> Table:
    table = Table(store, DETECTIONS, threads=1)
    table.refresh()
    return table


def append(store: Objects, numbers: range | list[int]) -> str:
    """A run of these rows, whose offsets have the same numbers. Returns its key."""
    coverage = Coverage.of({("alerts", 0): numbers})
    return Table(store, DETECTIONS, threads=1).append(ROWS.take(list(numbers)), coverage)


def checkpoint(store: Objects, says: Callable[[RunInfo], RunInfo] = lambda part: part) -> None:
    put_checkpoint(store, DETECTIONS, [says(part) for part in listed(store).listed()])


def damage(store: MemoryObjects, key: str, at: int = -60) -> None:
    """As a bad disk does: etag and time stay. By default the byte is in the footer."""
    data = bytearray(store.get(key))
    data[at] ^= 8
    store._objects[key] = bytes(data), store.head(key)


def merged(store: Objects) -> None:
    for _ in range(2):
        compact(Table(store, DETECTIONS, threads=1), START, Policy(grace=timedelta(), major=True))


def half_written(store: Objects, inputs: list[str]) -> str:
    """Begin a merge, and stop after its first part. Returns the part's key."""

    class Stopped(Exception):
        pass

    def stop(report: Report) -> None:
        raise Stopped

    report, table = Report(), listed(store)
    picked = [run for run in live(table.listed()) if run[0].key in inputs]
    with pytest.raises(Stopped):
        merge(table, picked, 1, Policy(run_rows=50, slice_rows=25), report, stop)
    [key] = report.written
    return key


def abandoned(store: Objects) -> str:
    """As `half_written`; then another run holds all of its inputs, and these are deleted."""
    inputs = [append(store, range(100 * number, 100 * number + 100)) for number in range(4)]
    part = half_written(store, inputs[:2])
    table = listed(store)
    picked = [run for run in live(table.listed()) if run[0].key in inputs]
    merge(table, picked, 1, Policy(slice_rows=1000), Report(), lambda report: None)
    for key in inputs:
        store.delete(key)
    return part


def deletions(collector: GarbageCollector) -> list[str]:
    return [part.key for part in collector.unneeded()]


@pytest.mark.parametrize("said", [None, range(10)])
def test_a_copy_stays_whose_offsets_only_a_checkpoint_leaves_out(said: range | None) -> None:
    """The first site has lost a run, and the other run there lacks 19 of its rows."""
    first, second = site(), site()
    last_copy = append(second, range(10_000))
    for store in (first, second):
        append(store, [*range(9001), *range(9020, 10_000)])
    if said:
        claim = Coverage.of({("alerts", 0): said})
        checkpoint(second, lambda p: replace(p, coverage=claim) if p.key == last_copy else p)
    assert list(unneeded_at_second_site(first, second, LATER, GRACE)) == []


@pytest.mark.parametrize("wrong", [None, "its own inputs", "those of another run"])
def test_a_half_written_run_stays_while_footers_name_inputs_that_are_there(
    wrong: str | None,
) -> None:
    store = site()
    inputs = [append(store, range(100)), append(store, range(100, 200))]
    part = half_written(store, inputs)
    other = append(store, range(200))
    names = tuple(name.run for key in inputs if (name := RunName.parse(key)))
    if wrong == "its own inputs":
        checkpoint(store, lambda p: replace(p, inputs=()) if p.key == part else p)
    elif wrong:
        checkpoint(store, lambda p: replace(p, inputs=names) if p.key == other else p)
    collector = GarbageCollector(listed(store), LATER, GRACE)
    assert deletions(collector) == []
    assert part not in collector.proof.damaged


def test_a_holder_that_is_merged_meanwhile_makes_no_run_lost() -> None:
    store = site()
    part = abandoned(store)
    unrelated = append(store, range(1000, 1100))
    collector = GarbageCollector(listed(store), LATER, GRACE)
    # Another compactor merges all runs, after this one has listed them.
    compact(Table(store, DETECTIONS, threads=1), LATER, Policy(grace=timedelta(days=1), major=True))
    store.delete(unrelated)
    assert deletions(collector) == []
    assert collector.proof.damaged == {}
    assert (
        deletions(GarbageCollector(listed(store), LATER + timedelta(days=2), GRACE)).count(part)
        == 1
    )


def test_a_damaged_holder_that_a_checkpoint_hides_is_named_and_stops_nothing() -> None:
    store = site()
    part = abandoned(store)
    unrelated = append(store, range(1000, 1100))
    checkpoint(store)
    damage(store, unrelated)
    table = listed(store)
    assert table.quarantined() == {}
    collector = GarbageCollector(table, LATER, GRACE)
    assert deletions(collector) == [part]
    assert list(collector.proof.damaged) == list(table.quarantined()) == [unrelated]


def test_a_holder_that_the_store_does_not_give_is_named_and_stops_nothing() -> None:
    store = site()
    part = abandoned(store)
    unrelated = append(store, range(1000, 1100))
    checkpoint(store)
    table = listed(Failing(store, StoreDown, lambda key, _: key == unrelated))
    assert table.quarantined() == {}
    collector = GarbageCollector(table, LATER, GRACE)
    assert deletions(collector) == [part]
    assert list(collector.proof.damaged) == list(table.quarantined()) == [unrelated]


def test_rows_that_the_store_does_not_give_are_deleted_nowhere_and_stop_nothing() -> None:
    """The footers can be read, and the rows of what holds them cannot."""
    store = site()
    part = abandoned(store)
    [holder] = [key for key in (info.key for info in store.list(f"{FOLDER}0001-")) if key != part]
    append(store, range(1000, 1100))
    table = listed(store)
    proof = DeletionProof(table)
    runs = {run[0].key: run for run in by_name(table.listed())}
    assert proof.hold(runs[part], [runs[holder]], every_row=True)
    table.objects = Failing(store, StoreDown, lambda key, _: key == holder)
    table.finder.reader = RunReader(table.objects, DETECTIONS, 0)
    assert proof.hold(runs[part], [runs[holder]], every_row=True) is None
    table.objects = table.reader.objects = Failing(store, StoreDown)
    with pytest.raises(StoreDown):
        proof.hold(runs[part], [runs[holder]], every_row=True)


@pytest.mark.parametrize("hidden", [pytest.param(False, marks=pytest.mark.long), True])
def test_each_footer_is_read_once_for_all_copies_even_a_damaged_one(hidden: bool) -> None:
    first, second = site(), site()
    for number in range(30):
        for store in (first, second):
            append(store, range(50 * number, 50 * number + 50))
    copies = [info.key for info in second.list(FOLDER)]
    merged(first)
    append(first, range(1500, 1550))
    merged(first)  # so that no run at the second site lists the copies
    others = [append(first, range(2000 + 50 * n, 2050 + 50 * n)) for n in range(5)]
    Replica(first, second, 1).catch_up()
    if hidden:
        checkpoint(second)
    damage(second, others[-1])
    damaged: list[str] = []
    watched = Watched(second)
    found = list(unneeded_at_second_site(first, watched, LATER, GRACE, damaged.append))
    assert sorted(found) == copies
    assert damaged == ([others[-1]] if hidden else [])
    # Twice to be sure; without a checkpoint the listing reads it, once for each of two questions.
    assert watched.calls.count(("get", others[-1])) < 8


def test_what_is_damaged_at_the_second_site_and_stays_is_reported() -> None:
    """The merged run there is not what a checkpoint says, so its inputs stay."""
    first, second = site(), site()
    for number in range(3):
        append(first, range(50 * number, 50 * number + 50))
    Replica(first, second, 1).catch_up()
    merged(first)
    [run] = [info.key for info in first.list(FOLDER)]
    Replica(first, second, 1).catch_up()
    checkpoint(second, lambda p: replace(p, rows=p.rows + 1) if p.key == run else p)
    damaged: list[str] = []
    assert list(unneeded_at_second_site(first, second, LATER, GRACE, damaged.append)) == []
    assert damaged == [run]
