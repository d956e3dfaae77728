"""An object named like a run that cannot be read or verified costs only itself."""

import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client import REGISTRY

from stampede.errors import StoreDown
from stampede.store.compaction.compact import Policy, compact
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs import quarantine
from stampede.store.runs.quarantine import Quarantine
from stampede.store.runs.run_name import RunName
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.runs.writer import GROUP_ROWS
from stampede.store.tables import listing
from stampede.store.tables.listing import MISSING_AFTER, VANISHED
from stampede.store.tables.table import Table
from tests.support.store.made_run import made_run, of_format
from tests.support.store.rows import detection, many, object_ids, table
from tests.support.store.watched_objects import Changed, Failing, Forwarding

FIRST = Coverage.of({("alerts", 0): range(10)})
SECOND = Coverage.of({("alerts", 0): range(10, 20)})
NOW = datetime(2026, 11, 20, tzinfo=UTC)


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :]


def a_parquet_file() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1]}), sink)
    return sink.getvalue().to_pybytes()


def lying(**lies: object) -> bytes:
    """A run of level 0 whose footer says what is not so."""
    return made_run(DETECTIONS, many(10), SECOND, lies)


def sound() -> bytes:
    """A run of level 0 with the rows of `many(10)`, in two row groups."""
    objects = MemoryObjects()
    key = Table(objects, DETECTIONS, threads=1).append(many(2 * GROUP_ROWS), SECOND)
    return objects.get(key)


def of_another_table() -> bytes:
    objects = MemoryObjects()
    key = Table(objects, CUTOUTS).append(CUTOUTS.schema.empty_table(), SECOND)
    return objects.get(key)


BAD = {
    "garbage": b"garbage " * 100,
    "empty": b"",
    "short": b"PAR1",
    "truncated": sound()[:-1],
    "without its end": sound()[:5000],
    "without its beginning": sound()[100:],
    "foreign": a_parquet_file(),
    "of another table": of_another_table(),
    "flipped footer": flipped(sound(), len(sound()) - 300),
    "wrong number of rows": lying(rows=11),
    "wrong first": lying(first="000001"),
    "wrong last": lying(last="zzz"),
    "no first": lying(first=None),
    "number for a string": lying(first=7),
    "last before first": lying(first="1", last="0"),
    "negative rows": lying(rows=-10),
    "wrong level": lying(level=3),
    "inputs are no list": lying(inputs=7),
    "a later format": of_format(sound(), "4"),
    "no format": of_format(sound(), "x"),
}


@pytest.mark.parametrize("data", list(BAD.values()), ids=list(BAD))
def test_a_bad_object_costs_only_itself(data: bytes) -> None:
    store = MemoryObjects()
    one = Table(store, DETECTIONS)
    good = one.append(table([detection("a", 1)]), FIRST)
    bad = RunName(0, "ef" * 16).key("detections")
    store.put(bad, data)
    one.refresh()
    assert one.lookup(["a"]).num_rows == 1
    assert [run.key for run in one.runs()] == [good]
    assert one.coverage() == FIRST
    assert list(one.quarantined()) == [bad]
    assert bad in one.quarantined()[bad]
    assert list(one.lacking(["a"])) == [bad]  # it may have held rows of any object
    labels = {"table": "detections"}
    assert REGISTRY.get_sample_value("stampede_quarantined_objects", labels) >= 1

    store.put(bad, sound())  # repaired
    one.refresh()
    assert one.quarantined() == {}
    assert one.lacking(["a"]) == {}
    assert one.lookup(["000003"]).num_rows == 1
    assert one.coverage() == FIRST | SECOND

    store.put(bad, data)
    one.refresh()
    store.delete(bad)
    one.refresh()
    assert one.quarantined() == {bad: VANISHED}  # with what it held
    assert Table(store, DETECTIONS).quarantined() == {}


def test_a_damaged_row_group_costs_only_itself() -> None:
    store = MemoryObjects()
    one = Table(store, DETECTIONS, cache_bytes=0)
    rows = many(3 * GROUP_ROWS)
    key = one.append(rows, FIRST)
    one.append(table([detection("002500", 10**6)]), SECOND)
    one.refresh()
    places = one.reader.index(one.runs()[0] if one.runs()[0].key == key else one.runs()[1]).starts
    store.put(key, flipped(store.get(key), int(places[1]) + 400))
    one.refresh()
    assert one.quarantined() == {}  # nobody has read it yet
    found = one.lookup(["000003", "002500", "005000"])
    assert found["object_id"].to_pylist() == ["000003", "002500", "005000"]
    assert found["source_id"].to_pylist()[1] == 10**6
    assert "row group 1" in one.quarantined()[key]
    assert list(one.lacking(["002500"])) == [key]
    assert one.lacking(["000003", "005000"]) == {}
    assert one.lookup(object_ids(rows)).num_rows == 2 * GROUP_ROWS + 1
    assert one.cached("000003") is None
    assert one.coverage() == SECOND  # rows of some offset are lost


def merged_table(store: MemoryObjects, parts: int = 4) -> Table:
    """A table of one merged run of several parts, and its two inputs."""
    one = Table(store, DETECTIONS, threads=1)
    one.append(many(4 * GROUP_ROWS), FIRST)
    one.append(many(4 * GROUP_ROWS, version=1), SECOND)
    compact(one, NOW, Policy(fanout=2, run_rows=8 * GROUP_ROWS // parts, slice_rows=GROUP_ROWS))
    assert len(one.runs()) == parts
    return one


def collect_garbage(one: Table) -> None:
    for part in one.listed():
        if part.name.level == 0:
            one.objects.delete(part.key)
    one.refresh()


@pytest.mark.parametrize("collected", [False, True], ids=["inputs are there", "inputs are gone"])
@pytest.mark.parametrize("damage", ["footer", "page", "lost"])
def test_a_damaged_part_of_a_merged_run(damage: str, collected: bool) -> None:
    store = MemoryObjects(lambda: NOW)
    one = merged_table(store)
    second = one.runs()[1]
    if collected:
        collect_garbage(one)
    data = store.get(second.key)
    if damage == "lost":
        store.delete(second.key)
    else:
        store.put(second.key, flipped(data, len(data) - 300 if damage == "footer" else 300))
    one = Table(store, DETECTIONS, threads=1)
    wanted = ["000000", second.first, "007999"]
    found = one.lookup(wanted)["object_id"].to_pylist()
    if collected:
        assert found == ["000000", "007999"]
        assert list(one.lacking([second.first])) == [second.key]
        assert list(one.quarantined()) == [second.key]
        assert one.coverage() == Coverage()
    else:  # the inputs are read instead
        assert found == wanted
        assert one.lacking(wanted) == {}
        assert one.coverage() == FIRST | SECOND
    assert one.lacking(["000000", "007999"]) == {}


def test_a_part_is_not_reported_as_long_as_others_of_its_run_arrive() -> None:
    """A replica copies a large run for longer than `MISSING_AFTER`, one part after the other."""
    one = merged_table(MemoryObjects(lambda: NOW))
    collect_garbage(one)
    *parts, last = one.runs()
    assert len(parts) > 1
    ages = [timedelta()]
    replica = MemoryObjects(lambda: datetime.now(UTC) - ages[-1])
    for number, part in enumerate(reversed(parts), 1):
        ages.append(number * MISSING_AFTER / 2)
        replica.put(part.key, one.objects.get(part.key))
    assert ages[-1] > MISSING_AFTER
    copy = Table(replica, DETECTIONS, threads=1)
    assert last.key in copy.lacking([last.first])
    assert copy.quarantined() == {}
    ages.append(MISSING_AFTER + timedelta(seconds=1))
    for part in parts:
        replica.put(part.key, one.objects.get(part.key))
    copy.refresh()
    assert list(copy.quarantined()) == [last.key]


def test_two_merged_runs_under_each_others_names() -> None:
    store = MemoryObjects()
    one = merged_table(store)
    collect_garbage(one)
    keys = [run.key for run in one.runs()[1:3]]
    data = [store.get(key) for key in keys]
    store.put(keys[0], data[1])
    store.put(keys[1], data[0])
    one.refresh()
    assert list(one.quarantined()) == keys


def test_a_part_that_a_listing_leaves_out_is_asked_for_by_name() -> None:
    store = MemoryObjects()
    one = merged_table(store)
    collect_garbage(one)
    hidden = one.runs()[1].key

    class Forgetful(Failing):
        def list(self, prefix: str, after: str = ""):
            return (info for info in super().list(prefix, after) if info.key != hidden)

    fresh = Table(Forgetful(store, StoreDown, lambda key, start: False), DETECTIONS)
    assert fresh.lookup(object_ids(many(4 * GROUP_ROWS))).num_rows == 4 * GROUP_ROWS
    assert fresh.quarantined() == {}
    assert fresh.coverage() == FIRST | SECOND


def test_a_damaged_answer_of_the_network_is_asked_for_again() -> None:
    store = MemoryObjects()
    Table(store, DETECTIONS).append(many(10), FIRST)
    seen = set()

    class FirstAnswerFlipped(Forwarding):
        def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
            data = super().get(key, start, length)
            if (start, length) in seen:
                return data
            seen.add((start, length))
            return flipped(data, len(data) - 300)

    one = Table(FirstAnswerFlipped(store), DETECTIONS, threads=1)
    assert one.lookup(["000003"]).num_rows == 1
    assert one.quarantined() == {}
    assert len(seen) == 2


def test_what_is_in_quarantine_is_read_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store may repair the bytes of an object, and its listing does not show that."""
    store = MemoryObjects()
    damaged = [True]

    def read(data: bytes) -> bytes:
        return flipped(data, len(data) - 300) if damaged[0] else data

    one = Table(Changed(store, read=read), DETECTIONS)
    key = one.append(many(10), FIRST)
    one.refresh()
    assert list(one.quarantined()) == [key]
    damaged[0] = False
    one.refresh()
    assert list(one.quarantined()) == [key]
    monkeypatch.setattr(quarantine, "RECHECK_SECONDS", 0.0)
    one.refresh()
    assert one.quarantined() == {}
    assert one.lookup(["000003"]).num_rows == 1


def test_one_object_that_the_store_does_not_give_costs_only_itself() -> None:
    store = MemoryObjects()
    writer = Table(store, DETECTIONS)
    stuck, _ = (writer.append(many(10, version=n), FIRST) for n in range(2))
    failing = [True]
    objects = Failing(store, StoreDown, lambda key, start: failing[0] and key == stuck)
    one = Table(objects, DETECTIONS)
    assert one.lookup(["000003"])["flux"].to_pylist() == [1.0]
    assert list(one.lacking(["000003"])) == [stuck]
    failing[0] = False
    one.refresh()
    assert one.quarantined() == {}


def test_a_few_objects_that_the_store_does_not_give_cost_only_themselves() -> None:
    store = MemoryObjects()
    runs = [Table(store, DETECTIONS).append(many(10, version=n), FIRST) for n in range(12)]
    for count in (3, 8):
        bad = runs[-count:]
        one = Table(Failing(store, StoreDown, lambda key, _, bad=bad: key in bad), DETECTIONS)
        assert one.lookup(["000003"])["flux"].to_pylist() == [11.0 - count]
        assert sorted(one.quarantined()) == sorted(bad)
    one = Table(Failing(store, StoreDown, lambda key, _: key in runs[-9:]), DETECTIONS)
    with pytest.raises(StoreDown):
        one.refresh()


def test_a_store_that_is_down_is_no_damage() -> None:
    store = MemoryObjects()
    writer = Table(store, DETECTIONS)
    for version in range(3):
        writer.append(many(10, version=version), FIRST)
    one = Table(Failing(store, StoreDown), DETECTIONS)
    with pytest.raises(StoreDown):
        one.refresh()


@pytest.mark.parametrize("length", [300, 5000, 100_000])
def test_very_long_keys_hide_nothing(length: int) -> None:
    """Arrow drops the statistics of a column chunk with a value of more than 4,096 bytes."""
    one = Table(MemoryObjects(), DETECTIONS)
    long = ["0" * 3 + letter * length for letter in "xyé"]
    rows = [detection(name, n) for n, name in enumerate(long)]
    one.append(table(rows), FIRST)
    one.append(pa.concat_tables([many(3 * GROUP_ROWS), table(rows[:2])]), SECOND)
    one.append(pa.concat_tables([table(rows[1:]), many(GROUP_ROWS)]), SECOND)
    wanted = sorted(["000003", "001999", "005999", *long])
    for _ in range(2):
        assert one.lookup(wanted)["object_id"].to_pylist() == wanted
        assert [one.lookup([name]).num_rows for name in wanted] == [1] * 6
        compact(
            one, NOW + timedelta(days=1), Policy(major=True, run_rows=GROUP_ROWS, slice_rows=500)
        )
        collect_garbage(one)
    assert one.quarantined() == {}


def test_a_damaged_input_is_not_merged_and_its_coverage_is_not_claimed() -> None:
    store = MemoryObjects()
    one = Table(store, DETECTIONS)
    third = Coverage.of({("alerts", 0): range(20, 30)})
    for version, coverage in enumerate((FIRST, SECOND)):
        one.append(many(2 * GROUP_ROWS, version=version), coverage)
    bad = one.append(many(3 * GROUP_ROWS, version=7), third)
    data = store.get(bad)
    store.put(bad, flipped(data, 300))
    report = compact(one, NOW, Policy(major=True))
    assert list(report.damaged) == [bad]
    [merged] = [part for part in Table(store, DETECTIONS).listed() if part.name.level]
    assert merged.coverage == FIRST | SECOND
    assert RunName.parse(bad).run not in merged.inputs
    assert list(one.quarantined()) == [bad]
    assert one.lookup(["000003"])["flux"].to_pylist() == [1.0]
    for _ in range(2):  # nothing deletes what may be the last copy
        compact(Table(store, DETECTIONS), NOW + timedelta(days=1), Policy(major=True))
        assert store.get(bad) != data

    store.put(bad, data)  # repaired
    assert compact(one, NOW + timedelta(days=2), Policy(major=True)).damaged == {}
    assert one.coverage() == FIRST | SECOND | third
    assert one.lookup(["000003"])["flux"].to_pylist() == [7.0]


def test_a_run_under_another_name_is_not_merged() -> None:
    """A merge would list the name as its input, and the run of that name would be deleted."""
    store = MemoryObjects()
    one = Table(store, DETECTIONS)
    first, second = (one.append(many(10, version=n), FIRST) for n in range(2))
    store.put(first, store.get(second))
    assert list(compact(one, NOW, Policy(major=True)).damaged) == [first]
    assert [part.key for part in one.listed()] == [second]


def test_a_page_of_a_merged_run_is_verified_when_it_is_merged_again() -> None:
    store = MemoryObjects(lambda: NOW)
    one = merged_table(store)
    collect_garbage(one)
    run = one.runs()[2]
    data = store.get(run.key)
    store.put(run.key, flipped(data, 300))
    one.append(many(10, version=9), SECOND)
    assert list(compact(one, NOW, Policy(major=True)).damaged) == [run.key]
    assert {part.name.level for part in one.listed()} == {0, 1}
    store.put(run.key, data)
    compact(one, NOW, Policy(major=True))
    assert [part.name.level for part in one.runs()] == [2]
    assert one.lookup(["000003", "007999"])["flux"].to_pylist() == [9.0, 1.0]


def test_a_run_that_was_cut_since_it_was_listed_costs_only_itself() -> None:
    store = MemoryObjects()
    one = Table(store, DETECTIONS)
    key = one.append(many(3 * GROUP_ROWS, version=1), FIRST)
    one.append(many(10), SECOND)
    one.refresh()
    store.put(key, store.get(key)[:5000])
    assert one.lookup(["000003", "005000"])["object_id"].to_pylist() == ["000003"]
    assert list(one.quarantined()) == [key]
    assert list(one.lacking(["005000"])) == [key]


@pytest.mark.long
def test_tables_are_made_while_others_count_their_faults() -> None:
    """As in a process that serves many requests: a count must not fail because of a new table."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    kept: list[Quarantine] = []
    errors: list[RuntimeError] = []

    def make() -> None:
        kept.extend(Quarantine("made") for _ in range(2000))

    def count() -> None:
        counted = Quarantine("made")
        try:
            for _ in range(300):
                counted.keep([])
        except RuntimeError as error:
            errors.append(error)

    threads = [threading.Thread(target=target) for target in (make, count, make, count)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not errors


def test_faults_that_threads_find_at_once_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    points = Table(MemoryObjects(), DETECTIONS)
    for coverage, rows in ((FIRST, many(10)), (SECOND, many(20))):
        points.append(rows, coverage)
    points.refresh()
    one, other = points.runs()
    made, view_of = threading.Event(), listing.TableView

    def slow(*args: Any) -> object:
        view = view_of(*args)
        if not made.is_set():
            made.set()
            time.sleep(0.1)  # meanwhile the other thread adds its fault
        return view

    monkeypatch.setattr(listing, "TableView", slow)
    thread = threading.Thread(
        target=points.listing.put_into_quarantine, args=(one, "it is damaged")
    )
    thread.start()
    made.wait()
    points.listing.put_into_quarantine(other, "it is damaged")
    thread.join()
    assert {*points.lacking([one.first])} == {one.key, other.key}
    points.close()
