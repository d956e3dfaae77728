"""Section files and offset files: a start does not read them, and without them nothing changes."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from stampede.errors import Damaged, StoreDown
from stampede.handlers.reconcile.checkpoints import rebuild
from stampede.store.compaction.compact import Policy, compact
from stampede.store.integrity.verification import verify
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs import packed_coverage, section_files
from stampede.store.runs import writer as run_writer
from stampede.store.runs.index_sections import Section, Sections, as_text
from stampede.store.runs.packed_coverage import StoredCoverage
from stampede.store.runs.run import RunInfo
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.runs.section_files import (
    is_section_file,
    parse_section_file,
    write_section_file,
)
from stampede.store.tables import checkpoint, checkpoint_files, offset_files
from stampede.store.tables.checkpoint import CHECKPOINTS, is_checkpoint, parse_checkpoint
from stampede.store.tables.checkpoint_files import (
    delete_damaged,
    keep_checkpoint,
    newest_checkpoint,
    put_checkpoint,
)
from stampede.store.tables.offset_files import is_offset_file
from stampede.store.tables.prefix_lookup import keys_with_prefix
from stampede.store.tables.table import Table
from tests.support.store.rows import many, object_ids
from tests.support.store.watched_objects import Failing, Watched

NOW = datetime(2026, 11, 20, tzinfo=UTC)
GRACE = timedelta(minutes=5)
PARTS, FILES = 12, 4
IDS = object_ids(many(240, 3))
SMALL = {"GROUP_ROWS": 4, "SECTION_GROUPS": 2, "SMALL_GROUPS": 2, "SMALL_FILTER": 10}
HELD = Coverage.of({("alerts", 0): range(0, 300, 2)})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL.items():
        monkeypatch.setattr(run_writer, name, value)
    monkeypatch.setattr(packed_coverage, "INLINE_BYTES", 100)
    monkeypatch.setattr(offset_files, "LARGE_BLOCK", 1)
    monkeypatch.setattr(checkpoint_files, "LARGE", 4)
    monkeypatch.setattr(checkpoint_files, "TOGETHER", 3)
    monkeypatch.setattr(checkpoint_files, "MOST_NEW_PARTS", 1)


class Clock:
    now = NOW

    def __call__(self) -> datetime:
        return self.now


def filled(clock: Clock | None = None) -> MemoryObjects:
    """A store with one run in twelve parts, which replaced two others, and one more."""
    objects = MemoryObjects(clock or Clock())
    table = Table(objects, DETECTIONS)
    for version in range(2):
        table.append(many(240, 3, version), HELD)
    compact(Table(objects, DETECTIONS), NOW, Policy(fanout=2, run_rows=40, slice_rows=8))
    table.append(many(30, 3, 5), Coverage.of({("alerts", 0): [1]}))
    compact(Table(objects, DETECTIONS), NOW, Policy(fanout=2, grace=timedelta(0)))
    return objects


def beside(objects: Objects, kind: Callable[[str], bool] = is_section_file) -> list[str]:
    return [info.key for info in objects.list(CHECKPOINTS) if kind(info.key)]


def reads(watched: Watched) -> list[str]:
    return [call[1] for call in watched.calls if call[0] == "get"]


def without_checkpoints(objects: MemoryObjects) -> Table:
    copy = MemoryObjects(objects.now)
    for info in objects.list("tables/"):
        copy._objects[info.key] = objects.get(info.key), info
        copy._keys.append(info.key)
    return Table(copy, DETECTIONS)


def test_a_start_reads_the_checkpoint_alone_and_a_lookup_one_file() -> None:
    objects = filled()
    assert len(beside(objects)) == FILES
    assert len(beside(objects, is_offset_file)) == 1
    watched = Watched(objects)
    table = Table(watched, DETECTIONS, threads=1)
    table.refresh()
    assert [*map(is_checkpoint, reads(watched))] == [True]
    other = without_checkpoints(objects)
    assert table.cached(IDS[40]) is None
    watched.calls.clear()
    assert table.lookup([IDS[40]]).equals(other.lookup([IDS[40]]))
    assert [key for key in reads(watched) if key.startswith(CHECKPOINTS)] == [
        next(part.sections_in for part in table.runs() if part.first <= IDS[40] <= part.last)
    ]
    watched.calls.clear()
    assert table.cached(IDS[40]).equals(other.lookup([IDS[40]]))
    assert reads(watched) == []
    assert table.lookup(IDS).equals(other.lookup(IDS))
    assert table.coverage() == other.coverage()


def test_sections_of_a_file_are_those_of_the_footers() -> None:
    objects = filled()
    started = Table(objects, DETECTIONS)
    footers = without_checkpoints(objects)
    unread = 0
    for part, other in zip(started.runs(), footers.runs(), strict=True):
        unread += part.sections_in is not None
        assert started.reader.with_sections(part).sections == other.sections
        assert part.coverage == other.coverage
    assert unread == PARTS
    [found] = [one for one in rebuild(objects, write=False) if one.parts]
    assert found.wrong == {}
    for info in objects.list(CHECKPOINTS):
        verify(objects, info)


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("cache", [0, 1 << 20])
def test_all_kinds_of_lookups_find_the_same(threads: int, cache: int) -> None:
    objects = filled()
    table = Table(objects, DETECTIONS, cache, threads)
    other = without_checkpoints(objects)
    assert table.lookup(IDS[10:70]).equals(other.lookup(IDS[10:70]))
    assert keys_with_prefix(table, "00003", 30) == IDS[30:40]
    table.close()


@pytest.fixture(params=["gone", "cut", "withheld", "garbage"])
def spoil(request: pytest.FixtureRequest) -> Callable[[Objects, str], Objects]:
    def spoiled(objects: Objects, key: str) -> Objects:
        if request.param == "withheld":
            return Failing(objects, StoreDown, lambda asked, start: asked == key)
        if request.param == "gone":
            objects.delete(key)
        elif request.param == "cut":
            objects.put(key, objects.get(key)[:-9])
        else:
            objects.put(key, b"garbage")
        return objects

    return spoiled


@pytest.mark.parametrize("kind", [is_section_file, is_offset_file])
def test_a_file_that_cannot_be_read_changes_nothing(
    kind: Callable[[str], bool], spoil: Callable[[Objects, str], Objects]
) -> None:
    objects = filled()
    [key, *_] = beside(objects, kind)
    other = without_checkpoints(objects)
    table = Table(spoil(objects, key), DETECTIONS)
    assert table.lookup(IDS).equals(other.lookup(IDS))
    assert table.coverage() == other.coverage()
    assert table.quarantined() == {}


@pytest.mark.parametrize("kind", [is_section_file, is_offset_file])
@pytest.mark.parametrize("damage", [b"", b"PAR1", b"flip"])
def test_a_damaged_file_is_named_and_written_again(
    kind: Callable[[str], bool], damage: bytes
) -> None:
    clock = Clock()
    objects = filled(clock)
    [key, *_] = beside(objects, kind)
    sound = objects.get(key)
    flipped = bytes([*sound[:20], sound[20] ^ 16, *sound[21:]])
    objects.put(key, flipped if damage == b"flip" else damage)
    with pytest.raises(Damaged, match=key):
        verify(objects, objects.head(key))
    [found] = [one for one in rebuild(objects, write=False) if one.parts]
    assert [*found.wrong] == [key]
    assert objects.get(key) != sound
    [found] = [one for one in rebuild(objects, write=True) if one.parts]
    assert objects.get(key) == sound
    assert not any(one.wrong for one in rebuild(objects, write=False))
    objects.put(key, damage)
    delete_damaged(objects, key)
    assert key not in beside(objects, kind)
    Table(objects, DETECTIONS).append(many(3, 3, 9), Coverage())
    assert Table(objects, DETECTIONS).keep_checkpoint(GRACE)  # from the footers
    assert objects.get(key) == sound


@pytest.mark.parametrize("kind", [is_section_file, is_offset_file])
def test_a_file_that_is_gone_is_written_again(kind: Callable[[str], bool]) -> None:
    objects = filled()
    there = beside(objects, kind)
    objects.delete(there[0])
    assert not any(one.wrong or one.faults for one in rebuild(objects, write=False))
    assert [one.written for one in rebuild(objects, write=True) if one.parts] != [None]
    assert beside(objects, kind) == there
    assert not any(one.written for one in rebuild(objects, write=True))


def test_what_did_not_change_is_neither_read_nor_written() -> None:
    objects = filled()
    Table(objects, DETECTIONS).append(many(3, 3, 9), Coverage())
    watched = Watched(objects)
    table = Table(watched, DETECTIONS)
    assert table.keep_checkpoint(GRACE)
    of_files = [call for call in watched.calls if not is_checkpoint(call[1])]
    assert not [call for call in of_files if CHECKPOINTS in call[1] and call[0] != "list"]


def test_files_of_runs_that_were_merged_go_after_the_grace() -> None:
    clock = Clock()
    objects = filled(clock)
    before = {*beside(objects), *beside(objects, is_offset_file)}
    later = Coverage.of({("alerts", 0): [301]})
    Table(objects, DETECTIONS).append(many(240, 3, 7), later)
    policy = Policy(fanout=2, run_rows=40, slice_rows=8, grace=timedelta(0), major=True)
    for _ in range(4):
        clock.now += timedelta(seconds=1)
        compact(Table(objects, DETECTIONS), clock.now, policy)
    there = {*beside(objects), *beside(objects, is_offset_file)}
    assert there
    assert not there & before
    named = newest_checkpoint(objects, DETECTIONS).parts.values()
    assert there == {key for part in named for key in checkpoint_files.files_of(part, DETECTIONS)}
    assert Table(objects, DETECTIONS).lookup(IDS).num_rows == 240


def test_files_stay_while_no_checkpoint_can_be_read() -> None:
    clock = Clock()
    objects = filled(clock)
    there = beside(objects)
    clock.now += GRACE
    keys = beside(objects, is_checkpoint)
    down = Failing(objects, StoreDown, lambda key, start: key in keys)
    keep_checkpoint(down, DETECTIONS, [], GRACE)
    assert beside(objects) == there


def test_a_part_that_was_written_again_has_sections_of_its_own() -> None:
    """The file has those of the part with the other etag."""
    objects = filled()
    parts = Table(objects, DETECTIONS).runs()
    [chosen, *_] = [part for part in parts if part.sections_in]
    objects._objects[chosen.key] = (
        objects.get(chosen.key),
        chosen.object._replace(etag="another"),
    )
    table = Table(objects, DETECTIONS)
    assert table.lookup(IDS).num_rows == 240
    assert put_checkpoint(objects, DETECTIONS, table.listed())
    again = Table(objects, DETECTIONS)
    assert len({part.sections_in for part in again.runs() if part.sections_in}) == FILES
    watched = Watched(objects)
    assert Table(watched, DETECTIONS).lookup(IDS).num_rows == 240
    assert not any(is_section_file(key) and "sections" not in key for key in reads(watched))


def forged(objects: Objects, changes: Callable[[RunInfo], RunInfo]) -> None:
    """A checkpoint whose section files, under right digests, say something wrong of a part."""
    table = Table(objects, DETECTIONS)
    parts = [table.reader.with_sections(part) for part in table.listed()]
    [chosen, *_] = [part for part in parts if part.sections and part.name.parts > 3]
    put_checkpoint(
        objects, DETECTIONS, [changes(part) if part is chosen else part for part in parts]
    )


def moved(part: RunInfo) -> RunInfo:
    """Its second section begins after its last key."""
    listed = part.sections.listed
    text = as_text([listed[0], listed[1]._replace(key="zzz"), *listed[2:]])
    return replace(part, sections=Sections(text, part.last, DETECTIONS))


def later(part: RunInfo) -> RunInfo:
    """Its second section begins at a later key: rows between would be overlooked."""
    listed = part.sections.listed
    key = listed[2].key
    text = as_text([listed[0], listed[1]._replace(key=key), *listed[2:]])
    return replace(part, sections=Sections(text, part.last, DETECTIONS))


def test_sections_that_contradict_themselves_are_not_used() -> None:
    objects = filled()
    forged(objects, moved)
    assert Table(objects, DETECTIONS).lookup(IDS).num_rows == 240
    wrong = []
    for key in beside(objects):
        try:
            verify(objects, objects.head(key))
        except Damaged as error:
            wrong.append((key, error.message))
    [(key, why)] = wrong
    assert "not in the order of keys" in why
    assert key in {key for one in rebuild(objects, write=False) for key in one.wrong}


def test_wrong_sections_under_a_right_digest_are_found_by_rebuild() -> None:
    objects = filled()
    forged(objects, later)
    [found] = [one for one in rebuild(objects, write=False) if one.parts]
    assert [key.startswith("tables/") for key in found.wrong] == [True]
    list(rebuild(objects, write=True))
    assert not any(one.wrong for one in rebuild(objects, write=False))
    assert Table(objects, DETECTIONS).lookup(IDS).num_rows == 240


def test_a_run_whose_offsets_nobody_can_read_is_forgotten_and_costs_no_answer() -> None:
    """Its parts and its offset file are gone: only the checkpoint's memory is lost."""
    objects = filled()
    [part, *_] = [part for part in Table(objects, DETECTIONS).runs() if part.name.parts > 1]
    for one in part.name.keys("detections"):
        objects.delete(one)
    table = Table(objects, DETECTIONS)
    table.refresh()
    assert set(part.name.keys("detections")) <= set(table.quarantined())  # by the offset file
    for key in beside(objects, is_offset_file):
        objects.delete(key)
    table = Table(objects, DETECTIONS)
    for _ in range(2):
        table.refresh()
        assert table.quarantined() == {}
        assert len(table.coverage()) == 1
    assert table.keep_checkpoint(GRACE)
    assert Table(objects, DETECTIONS).quarantined() == {}


def test_unreadable_offsets_of_a_whole_run_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = filled()
    for key in beside(objects, is_offset_file):
        objects.delete(key)
    monkeypatch.setattr(offset_files, "_ASKED", 0)
    table = Table(objects, DETECTIONS)
    assert len(table.coverage()) == 1
    assert table.lookup(IDS).num_rows == 240
    [part, *_] = [part for part in table.runs() if part.name.parts > 1]
    table.listing.put_into_quarantine(part, "damaged")
    assert set(table.lacking(IDS)) == {part.key}  # it may hold rows that no other run holds
    other = part.name.keys("detections")[1]
    objects.delete(other)
    table.refresh()
    assert other in table.lacking(IDS)


def test_a_store_that_is_down_is_not_taken_for_unreadable_offsets() -> None:
    objects = filled()
    table = Table(
        Failing(objects, StoreDown, lambda key, start: not is_checkpoint(key)), DETECTIONS
    )
    table.refresh()
    with pytest.raises(StoreDown):
        table.coverage()


def test_a_checkpoint_that_was_parsed_alone_has_no_offsets_to_give() -> None:
    objects = filled()
    newest = newest_checkpoint(objects, DETECTIONS)
    parts = parse_checkpoint(newest.key, objects.get(newest.key), DETECTIONS).parts.values()
    held = next(part.coverage for part in parts if isinstance(part.coverage, StoredCoverage))
    with pytest.raises(LookupError, match="not read"):
        held.partitions()


def test_an_earlier_checkpoint_is_read_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """One object, with the sections and the offsets in it."""
    objects = filled()
    footers = without_checkpoints(objects)
    for info in [*objects.list(CHECKPOINTS)]:
        objects.delete(info.key)
    new = checkpoint.columns(DETECTIONS, packed=True)
    before = pa.schema([f for f in new if f.name not in ("sections_in", "offsets_in")])
    with monkeypatch.context() as earlier:
        earlier.setattr(checkpoint, "columns", lambda spec, packed: before)
        earlier.setattr(checkpoint_files, "LARGE", 1000)
        earlier.setattr(offset_files, "LARGE_BLOCK", 1 << 20)
        key = put_checkpoint(objects, DETECTIONS, footers.listed())
    watched = Watched(objects)
    table = Table(watched, DETECTIONS)
    for part, other in zip(table.runs(), footers.runs(), strict=True):
        assert part.sections == other.sections
        assert part.coverage == other.coverage
    assert reads(watched) == [key]
    assert beside(objects) == []
    Table(objects, DETECTIONS).append(many(3, 3, 9), Coverage())
    assert Table(objects, DETECTIONS).keep_checkpoint(GRACE)
    assert len(beside(objects)) == FILES
    assert Table(objects, DETECTIONS).lookup(IDS).num_rows == 240


@pytest.mark.parametrize(
    "name",
    [
        "tables/detections/0000-x.parquet",
        f"checkpoints/cutouts/sections-{'0' * 32}.parquet",
    ],
)
def test_what_is_no_section_file_of_the_table_is_refused(name: str) -> None:
    objects = filled()
    with pytest.raises(Damaged):
        parse_section_file(name, objects.get(beside(objects)[0]), DETECTIONS)
    parts = Table(objects, DETECTIONS).listed()
    changed = [replace(part, sections_in=name) if part.sections_in else part for part in parts]
    bucket = newest_checkpoint(objects, DETECTIONS).bucket
    key, data = checkpoint.write_checkpoint(changed, DETECTIONS, 9, bucket)
    with pytest.raises(Damaged, match="no section file"):
        parse_checkpoint(key, bytes(data), DETECTIONS)


def test_a_section_file_of_another_table_has_other_columns() -> None:
    objects = filled()
    data = objects.get(beside(objects)[0])
    key = beside(objects)[0].replace("detections", "cutouts")
    with pytest.raises(Damaged, match="columns"):
        parse_section_file(key, data, CUTOUTS)


def odd(part: RunInfo) -> Iterator[Sections]:
    """Sections that a section file cannot say: they stay in the checkpoint."""
    listed = part.sections.listed
    yield Sections(
        as_text([*listed[:-1], listed[-1]._replace(start=listed[-1].start + 1)]),
        part.last,
        DETECTIONS,
    )
    yield Sections(
        as_text([*listed[:-1], listed[-1]._replace(group=listed[-1].group + 1)]),
        part.last,
        DETECTIONS,
    )
    yield Sections(part.sections.text + " ", part.last, DETECTIONS)


def test_sections_that_no_writer_makes_stay_in_the_checkpoint() -> None:
    objects = filled()
    table = Table(objects, DETECTIONS)
    part = next(part for part in table.runs() if part.sections_in)
    part = table.reader.with_sections(part)
    assert section_files.is_plain(part)
    for sections in odd(part):
        changed = replace(part, sections=sections)
        assert not section_files.is_plain(changed)
        key = put_checkpoint(objects, DETECTIONS, [changed])
        named = parse_checkpoint(key, objects.get(key), DETECTIONS).parts[part.key]
        assert named.sections.text == sections.text


def test_a_file_with_many_sections_says_the_same() -> None:
    chance = np.random.default_rng(1)
    objects = filled()
    table = Table(objects, DETECTIONS)
    part = table.reader.with_sections(next(part for part in table.runs() if part.sections_in))
    start, listed = 4, []
    for number, key in enumerate([part.first, *sorted(IDS[1:20])]):
        one = Section(key, 2 * number, start, *chance.integers(0, 1 << 31, 3).tolist())
        listed.append(one)
        start += one.length
    sections = Sections(as_text(listed), "zz", DETECTIONS)
    made = replace(part, last="zz", sections=sections)
    key, data = write_section_file([made], DETECTIONS)
    file = parse_section_file(key, bytes(data), DETECTIONS)
    assert file.of(made) == sections
    with pytest.raises(Damaged, match="another"):
        file.of(part)
