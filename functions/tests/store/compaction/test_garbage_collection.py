"""Garbage collection never deletes what may be the last copy, and names what is lost."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from stampede.errors import StoreDown
from stampede.store.compaction.compact import Policy, Report, compact
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs import writer as run_writer
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.listing import VANISHED
from stampede.store.tables.table import Table
from tests.support.store.rows import bits, many, object_ids
from tests.support.store.watched_objects import Omitting, Watched

START = datetime(2026, 11, 20, tzinfo=UTC)
NOW = timedelta(0)


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_writer, "GROUP_ROWS", 10)


def filled(runs: int = 8, kafka: bool = True) -> MemoryObjects:
    """A store with 400 rows in 8 runs."""
    store = MemoryObjects(lambda: START)
    table = Table(store, DETECTIONS, threads=1)
    for number in range(runs):
        coverage = Coverage.of({("alerts", 0): range(50 * number, 50 * number + 50)})
        rows = many(400).slice(50 * number, 50)
        table.append(rows, coverage if kafka else Coverage())
    return store


def collect_garbage(store: Objects, grace: timedelta = NOW, fanout: int = 8) -> Report:
    table = Table(store, DETECTIONS, threads=1)
    return compact(table, START, Policy(run_rows=50, slice_rows=50, grace=grace, fanout=fanout))


def parts_of_merged(store: Objects) -> list[str]:
    return [info.key for info in store.list("tables/detections/0001-")]


def rows_at(store: Objects) -> int:
    return Table(store, DETECTIONS, threads=1).lookup(object_ids(many(400))).num_rows


@pytest.mark.parametrize("kafka", [True, False])
@pytest.mark.parametrize("inputs_left", [False, True])
def test_a_merged_run_that_lost_a_part_keeps_the_others(kafka: bool, inputs_left: bool) -> None:
    store = filled(kafka=kafka)
    collect_garbage(store)
    if not inputs_left:
        collect_garbage(store)
    lost, *others = parts_of_merged(store)
    assert len(others) == 7
    kept = store.get(lost)
    store.delete(lost)
    report = collect_garbage(store)
    assert not report.deleted
    if inputs_left:
        assert store.get(lost) == kept  # merged again
    else:
        # Of what has offsets, a checkpoint says that the run is gone.
        why = VANISHED if kafka else "lost, and no other run holds all that its run held"
        assert report.damaged == {lost: why}
        assert parts_of_merged(store) == others
    store.put(lost, kept)
    assert rows_at(store) == 400
    assert not collect_garbage(store).damaged


def test_a_listing_that_omits_a_part_loses_nothing() -> None:
    store = filled()
    collect_garbage(store)
    collect_garbage(store)
    lost, *_ = parts_of_merged(store)
    report = collect_garbage(Omitting(store, lost))
    assert (report.deleted, report.damaged) == ([], {})
    assert rows_at(Omitting(store, lost)) == 400


def test_inputs_stay_while_the_merged_run_is_not_whole() -> None:
    """The compactor's listing is older than the loss of a part."""
    store = filled()
    collect_garbage(store)
    lost, *_ = parts_of_merged(store)

    def lose(_: int) -> None:
        if watched.calls[-1] == ("head", lost) and ("put", lost) not in watched.calls:
            store.delete(lost)

    watched = Watched(store, lose)
    report = collect_garbage(watched)
    assert not report.deleted
    assert report.written == [lost]  # again
    assert rows_at(store) == 400


def test_inputs_stay_while_the_merged_run_is_damaged() -> None:
    store = filled()
    collect_garbage(store)
    first, *_ = parts_of_merged(store)
    whole = store.get(first)
    damaged = bytearray(whole)
    damaged[100] ^= 4
    info = store.head(first)
    store._objects[first] = bytes(damaged), info  # its etag stays, as on a bad disk
    report = collect_garbage(store)
    assert not report.deleted
    assert list(report.damaged) == [first]
    store.put(first, whole)
    assert len(collect_garbage(store).deleted) == 8
    assert rows_at(store) == 400


@pytest.mark.parametrize("damage", [b"", b"garbage " * 100])
def test_an_input_that_cannot_be_read_goes_with_the_others(damage: bytes) -> None:
    store = filled()
    collect_garbage(store)
    inputs = [info.key for info in store.list("tables/detections/0000-")]
    store.put(inputs[3], damage)
    assert not collect_garbage(store, grace=timedelta(minutes=5)).deleted
    assert set(collect_garbage(store).deleted) == set(inputs)
    assert rows_at(store) == 400
    assert not Table(store, DETECTIONS, threads=1).quarantined()


@pytest.mark.parametrize("how", ["damaged", "lost", "half-written", "no merge"])
def test_an_object_that_cannot_be_read_stays_unless_a_merged_run_holds_its_rows(how: str) -> None:
    store = filled()
    [bad, *_] = [info.key for info in store.list("tables/detections/0000-")]
    whole = store.get(bad)
    if how == "half-written":
        with pytest.raises(StoreDown, match="crashed"):
            collect_garbage(Watched(store, crash_at=4))
    elif how != "no merge":
        collect_garbage(store)
        [first, *_] = parts_of_merged(store)
        if how == "damaged":
            flipped = bytearray(store.get(first))
            flipped[100] ^= 4
            store.put(first, bytes(flipped))
        else:
            store.delete(first)
    store.put(bad, b"garbage " * 100)
    assert bad not in collect_garbage(store, fanout=9).deleted
    assert store.get(bad) == b"garbage " * 100
    store.put(bad, whole)
    assert rows_at(store) == 400


def test_a_half_written_run_is_deleted_once_others_hold_its_rows() -> None:
    store = filled()
    with pytest.raises(StoreDown, match="crashed"):
        collect_garbage(Watched(store, crash_at=4))
    half_written = set(parts_of_merged(store))
    assert len(half_written) == 3
    other = Table(store, DETECTIONS, threads=1)
    compact(
        other, START, Policy(run_rows=100, slice_rows=50, grace=NOW)
    )  # another cut, another run
    reports = [
        collect_garbage(store),
        collect_garbage(store),
    ]  # the second finds the inputs deleted
    assert half_written <= {key for report in reports for key in report.deleted}
    assert not any(report.damaged for report in reports)
    assert rows_at(store) == 400


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))]
)
def test_nothing_that_others_lack_is_ever_deleted(seed: int) -> None:
    """Parts are lost, listings omit keys, compactors crash: every row not lost by us stays."""
    dice = random.Random(seed)
    store = filled(4)
    number = 4
    for _ in range(12):
        act = dice.random()
        keys = [info.key for info in store.list("")]
        if act < 0.3:
            rows = many(50 * number + 50).slice(50 * number)
            coverage = Coverage.of({("alerts", 0): range(50 * number, 50 * number + 50)})
            Table(store, DETECTIONS, threads=1).append(rows, coverage)
            number += 1
        elif act < 0.4:
            store.delete(dice.choice(keys))
        elif act < 0.5:
            store.put(dice.choice(keys), b"garbage " * 100)
        before = stored_rows(store)
        seen = Omitting(store, *dice.sample(keys, min(len(keys), dice.randrange(3))))
        crash_at = dice.choice([None, None, 1, 3, 9])
        try:
            collect_garbage(Watched(seen, crash_at=crash_at), fanout=dice.choice([2, 3]))
        except StoreDown as error:
            assert error.message == "crashed"  # noqa: PT017
        assert stored_rows(store) >= before
    assert number > 4


def stored_rows(store: Objects) -> set:
    """The rows of all objects, whether their runs are complete or not."""
    table = Table(store, DETECTIONS, threads=1)
    rows: set = set()
    for part in table.listed():
        file = table.reader.open(part)
        for found in file.read(file.numbers):
            rows.update(bits(found))
    return rows
