"""Compaction: fewer and larger runs with the same rows, in memory that does not grow."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from stampede.errors import NotFound, StoreDown
from stampede.store.compaction import compact as compaction
from stampede.store.compaction.compact import Policy, Progress, Report, compact
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.runs import writer as run_writer
from stampede.store.runs.merge import sort_unique
from stampede.store.runs.run_name import RunName
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables import table as tables
from stampede.store.tables.checkpoint import CHECKPOINTS
from stampede.store.tables.checkpoint_files import put_checkpoint
from stampede.store.tables.table import Table
from tests.support.store.rows import many, object_ids
from tests.support.store.watched_objects import Changed, Failing, Forwarding, Watched

START = datetime(2026, 11, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)


def fill(one: Table, count: int, rows: int = 30) -> pa.Table:
    """Append `count` runs, each with new versions of the same detections; the merged rows."""
    versions = [many(rows, 3, version) for version in range(count)]
    for version, rows_of_run in enumerate(versions):
        one.append(rows_of_run, Coverage.of({("alerts", 0): [version]}))
    return sort_unique(pa.concat_tables([many(0), *versions]), DETECTIONS)


def store_at(now: datetime = START) -> MemoryObjects:
    return MemoryObjects(lambda: now)


def levels(one: Table) -> list[int]:
    one.refresh()
    return sorted(run.name.level for run in one.runs() if run.name.part == 0)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, []),
        (1, [0]),
        (3, [0, 0, 0]),
        (4, [1]),
        (7, [0, 0, 0, 1]),
        (15, [0, 0, 0, 1, 1, 1]),
        (16, [2]),
        (21, [0, 1, 2]),
        (64, [3]),
    ],
)
def test_full_levels_move_up(count: int, expected: list) -> None:
    one = Table(store_at(), DETECTIONS)
    rows = fill(one, count)
    report = compact(one, START, Policy(fanout=4))
    assert levels(one) == expected
    assert one.lookup(object_ids(rows)).equals(rows)
    assert len(one.coverage()) == count
    assert bool(report.merged) == (count >= 4)
    assert not compact(one, START, Policy(fanout=4)).merged


def test_a_backlog_of_large_runs_is_not_merged_all_at_once() -> None:
    one = Table(store_at(), DETECTIONS)
    fill(one, 16, 30)
    report = compact(one, START, Policy(fanout=4, run_rows=100))
    assert {count for count, _, _ in report.merged} == {4}


@pytest.mark.parametrize("count", [2, 5, 23])
def test_major_merges_everything(count: int) -> None:
    one = Table(store_at(), DETECTIONS)
    rows = fill(one, count)
    compact(one, START, Policy(fanout=4))
    before = levels(one)
    report = compact(one, START, Policy(fanout=4, major=True))
    # Above all inputs; otherwise a concurrent listing could miss the rows.
    assert levels(one) == [max(before) + 1]
    assert len(report.merged) == 1
    assert one.lookup(object_ids(rows)).equals(rows)
    assert compact(one, START, Policy(fanout=4, major=True)) == Report()


class Listings(Forwarding):
    """Counts listings, whatever their length."""

    count = 0

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        self.count += 1
        return super().list(prefix, after)


def test_all_merges_follow_from_one_listing() -> None:
    """A listing of a backlog takes hundreds of requests: not one for each merge."""
    counts = []
    for runs in (4, 28):
        objects = Listings(store_at())
        one = Table(objects, DETECTIONS)
        rows = fill(one, runs, 60)
        report = compact(one, START, Policy(fanout=4, run_rows=100))
        assert len(report.merged) == {4: 1, 28: 8}[runs]
        counts.append(objects.count)
        assert one.lookup(object_ids(rows)).equals(rows)
        assert len(one.coverage()) == runs
    assert counts[0] == counts[1]


def test_a_merge_that_another_compactor_made_is_not_made_again() -> None:
    store = store_at()
    first, second = Table(store, DETECTIONS), Table(store, DETECTIONS)
    fill(first, 8)
    second.refresh()
    second.refresh = lambda: None  # its listing is older than the other's merges
    assert len(compact(first, START, Policy(fanout=4)).merged) == 2
    report = compact(second, START, Policy(fanout=4))
    assert (report.parts_found, report.written) == (2, [])
    assert [part.key for part in second.runs()] == [part.key for part in first.runs()]


def contents(objects: Objects) -> dict[str, str]:
    """The etags of all runs: each store has checkpoints of its own."""
    return {info.key: info.etag for info in objects.list("tables/")}


def test_nothing_to_do() -> None:
    objects = Watched(store_at())
    one = Table(objects, DETECTIONS)
    assert compact(one, START) == Report()
    assert compact(one, START, Policy(major=True)) == Report()
    fill(one, 7)
    there = contents(objects)
    assert compact(one, START) == Report()
    assert contents(objects) == there


def test_inputs_are_deleted_after_the_grace() -> None:
    store = store_at()
    one = Table(store, DETECTIONS)
    rows = fill(one, 8)
    compact(one, START, Policy(grace=HOUR))
    assert len(list(store.list("tables/"))) == 9
    assert not compact(one, START + HOUR - timedelta(seconds=1), Policy(grace=HOUR)).deleted
    report = compact(one, START + HOUR, Policy(grace=HOUR))
    assert len(report.deleted) == 8
    assert all("/0000-" in key for key in report.deleted)
    assert len(list(store.list("tables/"))) == 1
    one.refresh()
    assert one.lookup(object_ids(rows)).equals(rows)


def test_parts_are_cut_between_objects() -> None:
    one = Table(store_at(), DETECTIONS)
    rows = fill(one, 8, 30_000)
    report = compact(one, START, Policy(run_rows=60_000, slice_rows=20_000))
    one.refresh()
    parts = one.runs()
    assert len(parts) == len(report.written) == 5
    assert [part.name.part for part in parts] == [0, 1, 2, 3, 4]
    assert all(before.last < after.first for before, after in pairwise(parts))
    assert sum(part.rows for part in parts) == rows.num_rows == report.rows_written
    assert report.rows_read == 8 * 30_000
    assert one.lookup(object_ids(rows)).equals(rows)
    assert {part.coverage for part in parts} == {one.coverage()}
    assert report.bytes_written == sum(part.object.size for part in parts)
    assert report.bytes_read > 4 * report.bytes_written


def test_a_merge_continues_after_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_writer, "GROUP_ROWS", 50)
    store, other = store_at(), store_at()
    for one in (store, other):
        rows = pa.concat_tables(
            [
                fill(Table(one, DETECTIONS), 7, 300),
                many(100).slice(70),
            ]  # their row groups differ
        )
        Table(one, DETECTIONS).append(rows.slice(300), Coverage())
    with pytest.raises(StoreDown, match="crashed"):
        run(Watched(store, crash_at=3), HOUR)
    report = run(store, HOUR)
    assert report.parts_found == 2
    assert report.written
    assert not run(other, HOUR).parts_found
    merged = Table(store, DETECTIONS)
    assert levels(merged) == [1]
    rows = sort_unique(rows, DETECTIONS)
    assert merged.lookup(object_ids(rows)).equals(rows)
    assert contents(store) == contents(other)


class Enough(Exception):
    """A compactor stops here."""


def stop_after(parts: int) -> Progress:
    def progress(report: Report) -> None:
        if len(report.written) == parts:
            raise Enough

    return progress


@pytest.mark.parametrize(
    "turns",
    [(0, 1), *(pytest.param(e, marks=pytest.mark.long) for e in [(1, 0), (1, 2), (7, 4)])],
)
def test_compactors_that_go_by_different_orders_share_a_merge(
    turns: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While one is at its second part, another writes three: nobody writes one of them twice."""
    monkeypatch.setattr(run_writer, "GROUP_ROWS", 50)
    store, other = store_at(), store_at()
    for one in (store, other):
        rows = fill(Table(one, DETECTIONS), 8, 600)
    watched = Watched(store)
    merging = Policy(run_rows=500, slice_rows=250, grace=HOUR)

    def second(report: Report) -> None:
        if len(report.written) == 1:
            with pytest.raises(Enough):
                compact(
                    Table(watched, DETECTIONS),
                    START,
                    replace(merging, turn=turns[1]),
                    stop_after(3),
                )

    report = compact(Table(watched, DETECTIONS), START, replace(merging, turn=turns[0]), second)
    written = [key for operation, key in watched.calls if operation == "put" and "/0001-" in key]
    assert len(written) == len(set(written)) == len(report.written) + 3
    numbers = [RunName.parse(key).part for key in written]
    assert sorted(numbers) == list(range(len(numbers)))
    assert numbers != sorted(numbers)
    assert report.parts_found == 3
    assert len(written) > 7
    compact(Table(other, DETECTIONS), START, merging)
    assert contents(store) == contents(other)
    assert Table(store, DETECTIONS).lookup(object_ids(rows)).equals(rows)


@pytest.mark.parametrize("runs", [12, 32])
def test_compactors_begin_with_different_groups_of_runs(runs: int) -> None:
    """Of a level with several full groups, or of a backlog that rises two levels at once."""
    inputs = []
    for turn in range(2):
        one = Table(store_at(), DETECTIONS)
        fill(one, runs, 40)
        with pytest.raises(Enough):
            compact(one, START, Policy(fanout=4, turn=turn), progress=stop_after(1))
        one.refresh()
        inputs.append({name for part in one.runs() for name in part.inputs})
        for other in (5, 1):
            compact(one, START, Policy(fanout=4, turn=other))
        assert len(one.coverage()) == runs
    assert inputs[0]
    assert not inputs[0] & inputs[1]


@pytest.mark.long
def test_an_abandoned_half_written_run_is_deleted() -> None:
    store = store_at()
    one = Table(store, DETECTIONS)
    rows = fill(one, 8, 30_000)
    with pytest.raises(StoreDown, match="crashed"):
        compact(Table(Watched(store, crash_at=2), DETECTIONS), START, Policy(run_rows=60_000))
    compact(one, START, Policy(run_rows=90_000))  # another cut, so another run
    left = {run.key for run in one.listed()} - {run.key for run in one.runs()}
    assert len([key for key in left if "/0001-" in key]) == 1
    compact(one, START + HOUR, Policy(grace=HOUR))
    one.refresh()
    assert {run.key for run in one.listed()} == {run.key for run in one.runs()}
    assert one.lookup(object_ids(rows)).equals(rows)


def test_a_half_written_run_is_completed_while_another_process_sweeps_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stale listing shows a half-written run which by then holds the only copy of its rows."""
    monkeypatch.setattr(run_writer, "GROUP_ROWS", 50)
    store = store_at()
    rows = fill(Table(store, DETECTIONS), 8, 300)
    with pytest.raises(StoreDown, match="crashed"):
        run(Watched(store, crash_at=2))

    def meanwhile(number: int) -> None:
        operation, key = watched.calls[number]
        if operation == "get" and "/0001-" in key and not others:  # all inputs were listed and read
            others.extend([run(store), run(store)])

    others: list[Report] = []
    watched = Watched(store, meanwhile)
    run(watched)
    assert len(others[1].deleted) == 8
    one = Table(store, DETECTIONS)
    assert one.lookup(object_ids(rows)).equals(rows)
    assert len(one.coverage()) == 8


def test_a_half_written_run_whose_inputs_remain_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_writer, "GROUP_ROWS", 50)
    store = store_at()
    fill(Table(store, DETECTIONS), 8, 300)
    with pytest.raises(StoreDown, match="crashed"):
        run(Watched(store, crash_at=2))
    assert not compact(
        Table(store, DETECTIONS), START, Policy(fanout=99, grace=timedelta(0))
    ).deleted


def run(objects: Objects, grace: timedelta = timedelta(0)) -> Report:
    one = Table(objects, DETECTIONS, threads=1)
    return compact(one, START, Policy(run_rows=800, slice_rows=400, grace=grace))


@pytest.mark.long
def test_merges_with_different_settings_do_not_mix() -> None:
    """With other cuts the parts have other names, even if the inputs are the same."""
    names = set()
    for run_rows in (60_000, 90_000):
        one = Table(store_at(), DETECTIONS)
        fill(one, 8, 30_000)
        names |= {
            key.rpartition("-")[0] for key in compact(one, START, Policy(run_rows=run_rows)).written
        }
    assert len(names) == 2


def test_two_compactors_write_the_same_object() -> None:
    stores = [store_at(), store_at()]
    for store in stores:
        one = Table(store, DETECTIONS)
        fill(one, 8, 5000)
        compact(one, START)
    assert contents(stores[0]) == contents(stores[1])


def test_an_input_that_is_gone_stops_the_merge() -> None:
    store = store_at()
    fill(Table(store, DETECTIONS), 8, 5000)
    victim = next(iter(store.list("tables/"))).key

    # Its footer can be read, its rows cannot.
    failing = Failing(store, NotFound, lambda key, start: key == victim and start < 1000)
    with pytest.raises(StoreDown, match="inputs vanish"):
        compact(Table(failing, DETECTIONS), START)
    assert len(list(store.list("tables/"))) == 8


def test_an_output_that_reads_back_differently_stops_the_merge() -> None:
    store = store_at()
    fill(Table(store, DETECTIONS), 8)

    lossy = Changed(store, write=lambda data: data[:-9])
    with pytest.raises(StoreDown, match="0001-"):
        compact(Table(lossy, DETECTIONS), START, Policy(grace=timedelta(0)))
    assert sum("/0000-" in info.key for info in store.list("tables/")) == 8


@pytest.mark.long
def test_progress_is_reported() -> None:
    one = Table(store_at(), DETECTIONS)
    fill(one, 8, 30_000)
    reported: list[tuple[int, int]] = []
    compact(
        one,
        START,
        Policy(run_rows=60_000),
        progress=lambda report: reported.append((len(report.written), report.rows_written)),
    )
    assert [count for count, _ in reported] == [1, 2, 3, 4, 5][: len(reported)]
    assert reported == sorted(reported)
    assert len(reported) > 1


@pytest.mark.long
def test_memory_does_not_grow_with_the_runs() -> None:
    def peak(rows: int) -> int:
        one = Table(store_at(), DETECTIONS, cache_bytes=0)
        fill(one, 4, rows)
        pool = pa.proxy_memory_pool(pa.default_memory_pool())
        before = pa.default_memory_pool()
        pa.set_memory_pool(pool)
        try:
            compact(one, START, Policy(fanout=4, run_rows=20_000, slice_rows=10_000))
        finally:
            pa.set_memory_pool(before)
        return pool.max_memory()

    small, large = peak(20_000), peak(80_000)
    assert large < 1.5 * small


@pytest.mark.parametrize(
    "kind",
    [
        "memory",
        pytest.param("directory", marks=pytest.mark.long),
        pytest.param("s3", marks=pytest.mark.integration),
    ],
)
def test_compactors_race_while_others_append_and_read(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two compactors, an appender and a reader, each on its own thread, without any grace."""
    for module in (tables, compaction):  # a thread that the machine delays must not give up
        monkeypatch.setattr(module, "_TRIES", 1000)
    store: Objects
    if kind == "s3":
        store = open_objects(request.getfixturevalue("bucket"))
    else:
        store = MemoryObjects() if kind == "memory" else DirectoryObjects(tmp_path)
    appends, failures = 40, []
    done = threading.Event()

    def guarded(work) -> threading.Thread:  # type: ignore[no-untyped-def]
        def run() -> None:
            try:
                work()
            except Exception as error:
                failures.append(error)
                done.set()

        return threading.Thread(target=run, daemon=True)

    def append() -> None:
        one = Table(store, DETECTIONS)
        for version in range(appends):
            one.append(many(300, 3, version), Coverage.of({("alerts", 0): [version]}))
        done.set()

    def keep_compacting() -> None:
        one = Table(store, DETECTIONS, cache_bytes=1 << 20)
        while not done.is_set():
            now = datetime.now(UTC) + timedelta(seconds=2)
            compact(one, now, Policy(fanout=3, run_rows=200, slice_rows=100, grace=timedelta(0)))

    def keep_reading() -> None:
        one = Table(store, DETECTIONS, cache_bytes=1 << 20)
        latest = 0.0
        while not done.is_set():
            one.refresh()
            newest = one.lookup(["000050"])["flux"].to_pylist()
            if newest:
                assert newest == newest[:1] * 3
                assert newest[0] >= latest
                latest = newest[0]
            time.sleep(0.001)

    threads = [guarded(w) for w in (append, keep_compacting, keep_compacting, keep_reading)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(150)
        assert not thread.is_alive()
    assert not failures, failures
    one = Table(store, DETECTIONS)
    rows = many(300, 3, appends - 1)
    assert one.lookup(object_ids(rows)).equals(rows)
    assert len(one.coverage()) == appends


@pytest.mark.parametrize("level", [0, 1])
def test_a_run_that_the_store_does_not_give_stops_no_other_merge(level: int) -> None:
    """A checkpoint has its footer, so only a merge or a collector asks for it. None is lost."""
    objects = store_at()
    fill(Table(objects, DETECTIONS), 8)
    if level:
        compact(Table(objects, DETECTIONS), START, Policy(fanout=4, grace=HOUR))
    bad = next(info.key for info in objects.list(f"tables/detections/000{level}-"))
    [inputs] = [part.inputs for part in Table(objects, DETECTIONS).listed() if part.key == bad]
    Table(objects, DETECTIONS).append(many(30, 3, 9), Coverage.of({("alerts", 0): [20]}))
    for number in range(21, 28):
        row = Coverage.of({("alerts", 0): [number]})
        Table(objects, DETECTIONS).append(many(30, 3, number), row)
    put_checkpoint(objects, DETECTIONS, Table(objects, DETECTIONS).listing.remembered())
    before, good = Table(objects, DETECTIONS).coverage(), objects.get(bad)
    asked = many(30, 3, 27)
    reached = Failing(objects, StoreDown, lambda key, _: key == bad)
    for _ in range(2):
        report = compact(Table(reached, DETECTIONS), START, Policy(fanout=4, grace=timedelta()))
        assert bad in report.damaged
    assert objects.get(bad) == good
    assert {f"tables/detections/{name}.parquet" for name in inputs} <= {
        info.key for info in objects.list("tables/detections/0000-")
    }
    assert levels(Table(objects, DETECTIONS)) == ([0, 0, 0, 0, 1, 1, 1] if not level else [1] * 4)
    assert Table(objects, DETECTIONS).coverage() == before
    compact(Table(objects, DETECTIONS), START, Policy(fanout=4, grace=timedelta()))  # it is back
    assert len(levels(Table(objects, DETECTIONS))) == 1
    assert Table(objects, DETECTIONS).coverage() == before
    assert Table(objects, DETECTIONS).lookup(object_ids(asked)).equals(asked)


@pytest.mark.parametrize("damage", ["footer", "body", "not there for a moment"])
def test_a_damaged_merged_run_is_written_again_once(damage: str) -> None:
    """While its inputs are there. The pass ends, and the next one finds nothing to do."""
    objects = store_at()
    rows = fill(Table(objects, DETECTIONS), 4)
    compact(Table(objects, DETECTIONS), START, Policy(fanout=4, grace=HOUR))
    [merged] = [info.key for info in objects.list("tables/detections/0001-")]
    for info in list(objects.list(CHECKPOINTS)):  # it would say what the footer says
        objects.delete(info.key)
    good = objects.get(merged)
    at = {"footer": len(good) - 60, "body": 100}.get(damage)
    if at:
        objects.put(merged, good[:at] + bytes([good[at] ^ 255]) + good[at + 1 :])
    fails = iter([True] * 3 if at is None else [])
    reached = Failing(objects, StoreDown, lambda key, _: key == merged and next(fails, False))
    one = Table(reached, DETECTIONS)
    if damage == "body":
        one.refresh()
        [part] = [part for part in one.listed() if part.key == merged]
        one.listing.put_into_quarantine(part, "its body is damaged")
    report = compact(one, START, Policy(fanout=4, grace=HOUR))
    assert len(report.merged) <= 1
    assert objects.get(merged) == good
    assert levels(one) == [1]
    assert one.quarantined() == {}
    assert one.lookup(object_ids(rows)).equals(rows)
    assert not compact(one, START, Policy(fanout=4, grace=HOUR)).merged
