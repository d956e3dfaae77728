"""Checkpoints: a start reads few footers, believes nothing it should not, and misses lost runs."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stampede.errors import Damaged, StoreDown
from stampede.handlers.reconcile.checkpoints import rebuild
from stampede.store.compaction.compact import Policy, compact
from stampede.store.integrity.verification import verify
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.replication.replica import Replica
from stampede.store.replication.site_differences import differences
from stampede.store.runs import writer as run_writer
from stampede.store.runs.bloom_filters import Filter
from stampede.store.runs.index_sections import Sections
from stampede.store.runs.run import RunInfo
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.tables import checkpoint_files
from stampede.store.tables.checkpoint import (
    CHECKPOINTS,
    is_checkpoint,
    parse_checkpoint,
    write_checkpoint,
)
from stampede.store.tables.checkpoint_files import (
    keep_checkpoint,
    newest_checkpoint,
    put_checkpoint,
)
from stampede.store.tables.table import Table
from tests.support.store.rows import many, object_ids
from tests.support.store.watched_objects import Changed, Failing, Watched

NOW = datetime(2026, 11, 20, tzinfo=UTC)
GRACE = timedelta(minutes=5)
RUNS = 12


class Clock:
    now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_files, "MOST_NEW_PARTS", 4)


def fill(objects: Objects, count: int = RUNS, first: int = 0) -> None:
    table = Table(objects, DETECTIONS)
    for number in range(first, first + count):
        table.append(many(30, 3, number), Coverage.of({("alerts", 0): [number]}))


def filled(clock: Clock | None = None) -> MemoryObjects:
    """A store with runs of two levels, a merged run in parts, and a checkpoint."""
    objects = MemoryObjects(clock or Clock())
    fill(objects)
    compact(Table(objects, DETECTIONS), NOW, Policy(fanout=8, run_rows=100, grace=GRACE))
    return objects


def checkpoints(objects: Objects) -> list[str]:
    return [info.key for info in objects.list(CHECKPOINTS) if is_checkpoint(info.key)]


def keep(objects: Objects) -> str | None:
    table = Table(objects, DETECTIONS)
    return keep_checkpoint(objects, DETECTIONS, table.listed(), GRACE)


def test_a_start_reads_the_checkpoint_in_place_of_footers() -> None:
    objects = filled()
    [key] = checkpoints(objects)
    assert is_checkpoint(key)
    verify(objects, objects.head(key))
    watched = Watched(objects)
    table = Table(watched, DETECTIONS)
    table.refresh()
    assert [call for call in watched.calls if call[0] == "get"] == [("get", key)]
    objects.delete(key)
    without = Table(objects, DETECTIONS)
    without.refresh()
    for one, other in zip(table.runs(), without.runs(), strict=True):
        assert {**vars(one), "coverage": None} == {**vars(other), "coverage": None}
        assert one.coverage == other.coverage
    assert {part.name.level for part in table.runs()} == {0, 1}
    assert table.coverage() == without.coverage()
    ids = object_ids(many(30, 3))
    assert table.lookup(ids).equals(without.lookup(ids))
    assert table.quarantined() == without.quarantined() == {}


def test_other_parts_are_read_as_always() -> None:
    objects = filled()
    fill(objects, 2, first=RUNS)
    watched = Watched(objects)
    table = Table(watched, DETECTIONS)
    assert len(table.coverage()) == RUNS + 2
    assert watched.count("get") == 1 + 2
    compact(Table(objects, DETECTIONS), NOW + GRACE, Policy(fanout=2, grace=GRACE, major=True))
    assert Table(objects, DETECTIONS).coverage() == table.coverage()


@pytest.mark.parametrize("table", [CUTOUTS, DETECTIONS])
def test_an_empty_table_has_none(table) -> None:
    objects = MemoryObjects()
    assert newest_checkpoint(objects, table) is None
    compact(Table(objects, table), NOW)
    assert checkpoints(objects) == []


def test_a_new_one_is_written_when_it_is_due_and_two_are_kept() -> None:
    clock = Clock()
    objects = filled(clock)
    assert keep(objects) is None
    written = checkpoints(objects)
    for round_ in range(4):
        fill(objects, 3, first=100 + 10 * round_)
        assert keep(objects) is None
        fill(objects, 1, first=103 + 10 * round_)
        clock.now += GRACE
        written.append(keep(objects) or "")
        assert newest_checkpoint(objects, DETECTIONS).key == written[-1]
        assert set(written[-2:]) <= set(checkpoints(objects)) <= set(written[-3:])


def test_an_entry_counts_only_for_the_object_that_it_names() -> None:
    """A part was overwritten with other bytes, one was damaged: both are read."""
    objects = filled()
    parts = Table(objects, DETECTIONS).runs()
    merged = next(part for part in parts if part.name.level)
    data = bytearray(objects.get(merged.key))
    data[-200] ^= 1
    objects.put(merged.key, bytes(data))
    table = Table(objects, DETECTIONS)
    table.refresh()
    assert list(table.quarantined()) == [merged.key]
    assert merged.key not in {part.key for part in table.runs()}


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"flip", b"cut"])
def test_a_damaged_checkpoint_is_named_ignored_and_deleted(damage: bytes) -> None:
    clock = Clock()
    objects = filled(clock)
    [key] = checkpoints(objects)
    data = objects.get(key)
    flipped = bytes([*data[:300], data[300] ^ 16, *data[301:]])
    objects.put(key, {b"flip": flipped, b"cut": data[:-9]}.get(damage, damage))
    with pytest.raises(Damaged, match=key):
        verify(objects, objects.head(key))
    assert newest_checkpoint(objects, DETECTIONS) is None
    table = Table(objects, DETECTIONS)
    assert len(table.coverage()) == RUNS
    clock.now += GRACE
    new = keep(objects)
    assert new
    assert checkpoints(objects) == [new]


def test_an_older_one_stands_in_for_a_damaged_one() -> None:
    clock = Clock()
    objects = filled(clock)
    [old] = checkpoints(objects)
    fill(objects, 4, first=50)
    clock.now += timedelta(seconds=1)
    new = keep(objects)
    objects.put(new, b"garbage")
    assert newest_checkpoint(objects, DETECTIONS).key == old
    assert len(Table(objects, DETECTIONS).coverage()) == RUNS + 4


def test_what_is_no_checkpoint_is_refused() -> None:
    objects = filled()
    [key] = checkpoints(objects)
    [run, *_] = objects.list("tables/detections/0000-")
    with pytest.raises(Damaged):
        parse_checkpoint(run.key.replace("0000-", "0000000000-"), objects.get(run.key), DETECTIONS)
    with pytest.raises(Damaged):
        parse_checkpoint(key, objects.get(key), CUTOUTS)
    objects.put(f"{CHECKPOINTS}detections/9999999999-{'0' * 32}.parquet", b"x")
    objects.put(f"{CHECKPOINTS}detections/readme.txt", b"x")
    assert newest_checkpoint(objects, DETECTIONS).key == key


def test_a_checkpoint_that_does_not_read_back_is_an_error() -> None:
    objects = MemoryObjects(Clock())
    fill(objects)
    parts = Table(objects, DETECTIONS).runs()
    with pytest.raises(Exception, match="does not read back"):
        keep_checkpoint(Changed(objects, write=lambda data: data[:-1]), DETECTIONS, parts, GRACE)


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("level", [0, 1])
def test_a_run_that_somebody_deleted_is_named(level: int, restart: bool) -> None:
    """No listing shows that it was there. The checkpoint does, and so does an earlier listing."""
    objects = filled()
    table = Table(objects, DETECTIONS)
    table.refresh()
    lost = [part for part in table.runs() if bool(part.name.level) == bool(level)]
    run = [part for part in lost if part.name.run == lost[0].name.run]
    kept = {part.key: objects.get(part.key) for part in run}
    for part in table.listed():
        if part.key in kept or part.name.run in run[0].inputs:  # its inputs would be read instead
            objects.delete(part.key)
    if restart:
        table = Table(objects, DETECTIONS)
    for _ in range(2):
        table.refresh()
        assert set(table.quarantined()) == set(kept)
        assert set(table.lacking([run[0].first])) & set(kept)
        assert run[0].coverage - table.coverage() == run[0].coverage
    fill(objects, 8, first=100)
    compact(Table(objects, DETECTIONS), NOW + GRACE, Policy(fanout=2, grace=timedelta(0)))
    assert len(checkpoints(objects)) == 2
    assert set(kept) <= set(Table(objects, DETECTIONS).quarantined())  # the new one remembers it
    for key, data in kept.items():
        objects.put(key, data)
    table.refresh()
    assert table.quarantined() == table.lacking([run[0].first]) == {}
    assert len(table.coverage()) == RUNS + 8


def test_a_run_that_was_merged_is_no_loss() -> None:
    """Also if it was merged twice, and every run in between is deleted."""
    objects = filled()
    table = Table(objects, DETECTIONS)
    table.refresh()
    for round_ in range(3):
        fill(objects, 3, first=100 + 10 * round_)
        later = NOW + (round_ + 1) * GRACE
        compact(Table(objects, DETECTIONS), later, Policy(fanout=2, grace=timedelta(0), major=True))
        compact(Table(objects, DETECTIONS), later, Policy(fanout=2, grace=timedelta(0)))
    for one in (table, Table(objects, DETECTIONS)):
        one.refresh()
        assert one.quarantined() == one.lacking(object_ids(many(30, 3))) == {}
        assert len(one.coverage()) == RUNS + 9


def test_a_listing_that_leaves_out_a_part_of_the_checkpoint_misses_nothing() -> None:
    objects = filled()
    hidden = Table(objects, DETECTIONS).runs()[0].key

    class Short(Watched):
        def list(self, prefix: str, after: str = ""):
            return (info for info in super().list(prefix, after) if info.key != hidden)

    table = Table(Short(objects), DETECTIONS)
    table.refresh()
    assert len(table.coverage()) == RUNS
    assert table.quarantined() == {}


def test_each_site_has_its_own(tmp_path: Path) -> None:
    source, target = filled(), DirectoryObjects(tmp_path)
    replica = Replica(source, target, 2)
    assert not any(is_checkpoint(info.key) for info in replica.missing())
    replica.catch_up()
    assert checkpoints(target) == []
    assert not any(is_checkpoint(found.key) for found in differences(source, target))
    assert len(Table(target, DETECTIONS).coverage()) == RUNS


@pytest.mark.long
def test_many_parts_and_many_holes_make_a_small_checkpoint(monkeypatch) -> None:
    """All parts of a run have the same coverage, which is there once."""
    objects = MemoryObjects(Clock())
    table = Table(objects, DETECTIONS)
    holes = Coverage.of({("alerts", 0): range(0, 20_000, 2)})
    monkeypatch.setattr(run_writer, "GROUP_ROWS", 20)
    for version in range(2):
        table.append(many(600, 3, version), holes)
    compact(table, NOW, Policy(fanout=2, run_rows=50, slice_rows=50, grace=GRACE))
    [key] = checkpoints(objects)
    parts = table.runs()
    assert len(parts) > 4
    block = parts[0].coverage.block.length
    assert block > 10_000
    assert sum(part.object.size for part in parts) > len(parts) * block
    assert objects.head(key).size < len(holes.to_json())
    known = newest_checkpoint(objects, DETECTIONS).parts
    assert len({id(part.coverage) for part in known.values() if part.name.level}) == 1


def test_a_checkpoint_that_the_store_does_not_return_costs_only_itself() -> None:
    clock = Clock()
    objects = filled(clock)
    [old] = checkpoints(objects)
    fill(objects, 4, first=50)
    new = keep(objects)
    for unreadable in ([new], [old, new]):
        down = Failing(objects, StoreDown, lambda key, start, keys=unreadable: key in keys)
        table = Table(down, DETECTIONS)
        assert len(table.coverage()) == RUNS + 4
        compact(table, NOW)
    assert {old, new} <= set(checkpoints(objects))


def test_a_damaged_run_stays_in_the_checkpoint() -> None:
    """Its coverage is known nowhere else once somebody has deleted it."""
    clock = Clock()
    objects = filled(clock)
    table = Table(objects, DETECTIONS)
    part = next(part for part in table.runs() if part.name.level == 0)
    table.listing.put_into_quarantine(part, "its bytes are damaged")
    assert part.key in {one.key for one in table.listing.remembered()}
    fill(objects, 4, first=50)
    table.refresh()
    keep_checkpoint(objects, DETECTIONS, table.listing.remembered(), GRACE)
    objects.delete(part.key)
    assert list(Table(objects, DETECTIONS).quarantined()) == [part.key]


def test_a_footer_that_cannot_be_read_is_read_again_whatever_a_checkpoint_says() -> None:
    """Its disk changes bytes and not the etag; `rebuild` finds that, and writes a checkpoint."""
    objects = filled()
    keep(objects)
    part = next(part for part in Table(objects, DETECTIONS).runs() if part.name.level == 0)
    data = bytearray(objects.get(part.key))
    data[-60] ^= 8
    objects._objects[part.key] = bytes(data), objects.head(part.key)
    assert not Table(objects, DETECTIONS).quarantined()
    assert [[*one.faults] for one in rebuild(objects, write=True) if one.faults] == [[part.key]]
    assert [*Table(objects, DETECTIONS).quarantined()] == [part.key]
    objects.delete(part.key)
    assert [*Table(objects, DETECTIONS).quarantined()] == [part.key]  # by memory


def test_a_checkpoint_that_the_store_withholds_stays_older_than_the_next() -> None:
    objects = filled()
    keep(objects)
    [old] = checkpoints(objects)
    fill(objects, 4, first=50)
    down = Failing(objects, StoreDown, lambda key, start: key == old)
    [found] = [one for one in rebuild(down, write=True) if one.parts]
    assert ([*found.unreadable], found.wrong, found.faults) == ([old], {}, {})
    assert checkpoints(objects) == [old, found.written]
    newest = newest_checkpoint(objects, DETECTIONS)
    assert newest
    assert newest.key == found.written


def test_a_part_in_quarantine_is_not_gone() -> None:
    objects = filled()
    table = Table(objects, DETECTIONS)
    [part, *_] = table.runs()
    table.listing.put_into_quarantine(part, "its index is damaged")
    for _ in range(2):
        table.refresh()
        assert table.quarantined()[part.key] == "its index is damaged"
        assert table.listing.vanished() == []


def test_inputs_of_a_damaged_run_that_are_swept_are_not_named_gone() -> None:
    objects = filled()
    table = Table(objects, DETECTIONS)
    merged = next(part for part in table.runs() if part.name.level)
    table.listing.put_into_quarantine(merged, "a row group is damaged", 0)
    for part in table.listed():
        if part.name.run in merged.inputs:
            objects.delete(part.key)
    table.refresh()
    assert list(table.quarantined()) == [merged.key]


def test_a_pass_reads_the_newest_checkpoint_once() -> None:
    clock = Clock()
    objects = filled(clock)
    fill(objects, 1, first=50)
    [old] = checkpoints(objects)
    watched = Watched(objects)
    compact(Table(watched, DETECTIONS), NOW)
    assert [call for call in watched.calls if call == ("get", old)] == [("get", old)]


def test_one_that_another_compactor_wrote_meanwhile_is_not_overlooked() -> None:
    """A table that lives long knows an old one: the next still gets a greater number."""
    objects = filled()
    table = Table(objects, DETECTIONS)
    table.refresh()
    fill(objects, 4, first=50)
    other = keep(objects)
    fill(objects, 4, first=60)
    table.refresh()
    new = table.keep_checkpoint(GRACE)
    assert newest_checkpoint(objects, DETECTIONS).key == new > other


def test_a_write_that_was_not_made_is_an_error() -> None:
    class Forgetful(Watched):
        def put(self, key: str, data: bytes | memoryview, sha256: str | None = None) -> None:
            pass

    objects = MemoryObjects(Clock())
    fill(objects)
    with pytest.raises(StoreDown, match="does not read back"):
        Table(Forgetful(objects), DETECTIONS).keep_checkpoint(GRACE)


def test_a_run_whose_footer_was_damaged_stays_in_the_checkpoint() -> None:
    """As soon as somebody deletes it, nothing else knows what it held."""
    objects = filled()
    [part, *_] = Table(objects, DETECTIONS).runs()
    objects.put(part.key, b"garbage " * 100)
    fill(objects, 4, first=50)
    assert Table(objects, DETECTIONS).keep_checkpoint(GRACE)
    objects.delete(part.key)
    assert list(Table(objects, DETECTIONS).quarantined()) == [part.key]


def forged(objects: Objects, **changes: Any) -> RunInfo:
    """A checkpoint, with a right digest, that says something wrong of one run of level 0."""
    table = Table(objects, DETECTIONS)
    table.refresh()
    chosen = table.runs()[0]
    parts = [replace(part, **changes) if part is chosen else part for part in table.listed()]
    put_checkpoint(objects, DETECTIONS, parts)
    return chosen


def test_a_wrong_filter_in_a_checkpoint_is_found() -> None:
    """It would hide rows from every reader."""
    objects = filled()
    chosen = forged(objects, filter=Filter(bytes(32)))
    assert chosen.filter
    found = {key: why for one in rebuild(objects, write=False) for key, why in one.wrong.items()}
    assert list(found) == [chosen.key]
    list(rebuild(objects, write=True))
    assert not any(one.wrong for one in rebuild(objects, write=False))


WRONG: dict[str, dict[str, Any]] = {
    "no sections": {"text": "[]"},
    "sections are no list": {"text": "{}"},
    "a key of another type": {"text": '[[7, 0, "00", "0a", "0a", "0a"]]'},
    "lists without end": {"text": "[" * 100_000},
    "no key": {"text": '[[null, 0, "00", "0a", "0a", "0a"]]'},
    "a place that is no number": {"text": '[["000000", 0, "x", "0a", "0a", "0a"]]'},
    "the first sections left out": {"text": '[["000005", 0, "00", "0a", "0a", "0a"]]'},
    "the first row groups left out": {"text": '[["000000", 9, "00", "0a", "0a", "0a"]]'},
    "keys in another order": {
        "text": '[["000000", 0, "00", "0a", "0a", "0a"], ["000009", 1, "0", "1", "1", "1"],'
        '["000003", 2, "0", "1", "1", "1"]]'
    },
    "a negative number": {"text": '[["000000", 0, "-9", "0a", "0a", "0a"]]'},
    "no first key": {"first": None},
    "neither key": {"first": None, "last": None},
    "keys without rows": {"rows": 0},
    "a last key before the first": {"last": "!"},
    "half a filter": {"bits": b"x"},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_entry_that_would_hide_rows_is_refused(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote it: the digest is right, so without this only `rebuild` would find it."""
    objects, changes = filled(), dict(WRONG[wrong])
    ids = object_ids(many(30, 3))
    before = Table(objects, DETECTIONS).lookup(ids)
    part = next(part for part in Table(objects, DETECTIONS).runs() if part.first == "000000")
    if "text" in changes:
        changes = {"sections": Sections(changes["text"], part.last, DETECTIONS)}
    if "bits" in changes:
        made = Filter(bytes(32))
        object.__setattr__(made, "data", changes["bits"])
        changes = {"filter": made}
    table = Table(objects, DETECTIONS)
    parts = [replace(one, **changes) if one.key == part.key else one for one in table.listed()]
    [old] = checkpoints(objects)
    key, data = write_checkpoint(
        parts, DETECTIONS, 7, newest_checkpoint(objects, DETECTIONS).bucket
    )
    objects.put(key, data)
    with pytest.raises(Damaged, match=key):
        parse_checkpoint(key, objects.get(key), DETECTIONS)
    assert newest_checkpoint(objects, DETECTIONS).key == old
    assert Table(objects, DETECTIONS).lookup(ids).equals(before)


def test_a_foreign_number_does_not_end_the_numbers() -> None:
    objects = filled()
    objects.put(f"{CHECKPOINTS}detections/9999999999-{'0' * 32}.parquet", b"garbage")
    new = put_checkpoint(objects, DETECTIONS, Table(objects, DETECTIONS).listed())
    assert is_checkpoint(new)
    newest = newest_checkpoint(objects, DETECTIONS)
    assert newest
    assert newest.key == new


def test_no_merge_claims_the_coverage_that_a_checkpoint_invented() -> None:
    objects = filled()
    forged(objects, coverage=Coverage.of({("alerts", 0): range(1000)}))
    compact(Table(objects, DETECTIONS), NOW, Policy(fanout=2, major=True))
    for info in list(objects.list(CHECKPOINTS)):
        objects.delete(info.key)
    assert len(Table(objects, DETECTIONS).coverage()) == RUNS


def test_nothing_is_deleted_because_a_checkpoint_invented_an_input() -> None:
    objects = filled()
    others = [part for part in Table(objects, DETECTIONS).runs() if part.name.level == 0]
    chosen = forged(objects, inputs=tuple(part.name.run for part in others[1:]))
    report = compact(Table(objects, DETECTIONS), NOW + GRACE, Policy(fanout=100, grace=timedelta()))
    assert set(report.damaged) == {chosen.key}
    assert "stampede rebuild" in report.damaged[chosen.key]
    for info in list(objects.list(CHECKPOINTS)):
        objects.delete(info.key)
    assert len(Table(objects, DETECTIONS).coverage()) == RUNS


@pytest.mark.parametrize(("holes", "gets"), [(1, 1), (10_000, 3)])
def test_a_footer_that_a_merge_or_deletion_goes_by_costs_few_requests(
    holes: int, gets: int
) -> None:
    watched = Watched(MemoryObjects(Clock()))
    table = Table(watched, DETECTIONS, threads=1)
    table.append(many(600), Coverage.of({("alerts", 0): range(0, 2 * holes, 2)}))
    [part] = table.listed()
    watched.calls.clear()
    table.reader.footer(part.object)
    assert watched.count("get") == gets
