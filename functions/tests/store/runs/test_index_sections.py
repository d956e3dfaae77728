"""Sections and filters of runs: lookups ask few runs, read little, and miss no row for damage."""

import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stampede.alerts.columns import CUTOUT_LOCATION
from stampede.errors import Damaged
from stampede.store.compaction.compact import Policy, compact
from stampede.store.integrity.verification import verify
from stampede.store.objects.lru_cache import Cache
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.parquet.checksums import metadata_of
from stampede.store.runs import writer as run_writer
from stampede.store.runs.index_sections import Sections, open_section
from stampede.store.runs.reader import TAIL_BYTES
from stampede.store.runs.run import RunInfo
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.tables import checkpoint, checkpoint_files
from stampede.store.tables.checkpoint_files import put_checkpoint
from stampede.store.tables.table import Table
from tests.support.store.rows import detection, many, object_ids, table
from tests.support.store.watched_objects import Changed, Watched

NOW = datetime(2026, 11, 20, tzinfo=UTC)
COVERAGE = Coverage.of({("alerts", 0): range(10)})
ROWS = many(400, 2)  # 200 keys in 40 row groups: 10 sections


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"GROUP_ROWS": 10, "SECTION_GROUPS": 4, "SMALL_GROUPS": 3, "SMALL_FILTER": 64}
    for name, size in small.items():
        monkeypatch.setattr(run_writer, name, size)


def filled(rows: pa.Table = ROWS, spec=DETECTIONS) -> tuple[MemoryObjects, RunInfo]:
    objects = MemoryObjects()
    one = Table(objects, spec, threads=1)
    one.append(rows, COVERAGE)
    return objects, one.runs()[0]


def test_a_first_lookup_reads_a_section_and_a_row_group() -> None:
    objects, run = filled()
    assert run.filter is None
    assert len(run.sections.listed) == 10
    watched = Watched(objects)
    one = Table(watched, DETECTIONS, threads=1)
    one.refresh()
    before = watched.count("get")
    assert one.cached("000103") is None
    assert one.lookup(["000103"]).num_rows == 2
    assert watched.count("get") == before + 2
    assert one.lookup(["000107"]).num_rows == 2  # the same section
    assert watched.count("get") == before + 3
    assert [one.cached(key).num_rows for key in ("000103", "000107")] == [2, 2]
    assert one.lookup(object_ids(ROWS)).equals(ROWS)


@pytest.mark.long
def test_a_lookup_asks_few_of_many_runs() -> None:
    """Each object is in two of forty runs, as any run may have any object."""
    objects, chance = MemoryObjects(), Random(4)
    writer = Table(objects, DETECTIONS, threads=1)
    ids = [f"{n:06}" for n in range(800)]
    in_runs = {one: chance.sample(range(40), 2) for one in ids}
    for run in range(40):  # the larger ones have sections
        here = [one for one in ids if run in in_runs[one]]
        writer.append(table([detection(one, run) for one in here]), COVERAGE)
    assert {run.sections is None for run in writer.runs()} == {True, False}
    watched = Watched(objects)
    one = Table(watched, DETECTIONS, threads=1)
    one.lookup(ids)
    one.reader.cache = Indexes(one.reader.cache)
    before = watched.count("get")
    for wanted in ids:
        found = one.lookup([wanted])
        assert sorted(found["source_id"].to_pylist()) == sorted(in_runs[wanted])
    assert watched.count("get") - before < 2.5 * len(ids)


class Indexes:
    """A cache without rows."""

    def __init__(self, cache) -> None:
        self._cache = cache

    def get(self, name: tuple):
        return self._cache.get(name) if name[0] == "index" else None

    def holds(self, name: tuple) -> bool:
        return name[0] == "index" and self._cache.holds(name)

    def put(self, name: tuple, value: object, size: int) -> None:
        if name[0] == "index":
            self._cache.put(name, value, size)


def test_rows_do_not_drive_indexes_out_of_the_cache() -> None:
    objects, run = filled()
    large = Table(objects, DETECTIONS, threads=1)
    large.lookup(object_ids(ROWS))
    limit = 2 * large.reader.indexes.bytes + large.reader.cache.bytes // 4
    one = Table(objects, DETECTIONS, threads=1, cache_bytes=limit)
    for wanted in object_ids(ROWS) * 2:
        one.lookup([wanted])
    assert one.reader.indexes.bytes + one.reader.cache.bytes <= limit
    assert one.reader.cache.bytes < large.reader.cache.bytes
    assert all(one.reader.has_index(run, section) for section in range(len(run.sections.listed)))
    tight = Table(objects, DETECTIONS, threads=1, cache_bytes=large.reader.indexes.bytes)
    assert [tight.lookup([wanted]).num_rows for wanted in object_ids(ROWS)] == [2] * 200
    assert tight.reader.indexes.bytes + tight.reader.cache.bytes <= large.reader.indexes.bytes


def test_a_start_from_a_checkpoint_knows_the_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_files, "MOST_NEW_PARTS", 1)
    objects = MemoryObjects()
    one = Table(objects, DETECTIONS, threads=1)
    for first in range(4):  # of few keys each, in the same range
        names = [f"{n:06}" for n in range(first, 80, 4)]
        one.append(table([detection(name, 1) for name in names]), COVERAGE)
    one.append(ROWS, COVERAGE)
    compact(one, NOW)
    watched = Watched(objects)
    started = Table(watched, DETECTIONS, threads=1)
    started.refresh()
    assert watched.count("get") == 1  # the checkpoint
    assert [(run.filter, run.sections) for run in started.runs()] == [
        (run.filter, run.sections) for run in one.runs()
    ]
    assert started.lookup(["000042"]).num_rows == 3
    # A section and a row group of the large run; of one of the four the footer and a row group.
    assert watched.count("get") == 5


def test_a_checkpoint_of_before_has_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_files, "MOST_NEW_PARTS", 1)
    columns = checkpoint.columns(DETECTIONS)
    before = pa.schema([f for f in columns if f.name not in ("filter", "sections")])
    monkeypatch.setattr(checkpoint, "columns", lambda spec, packed: before)
    objects, _ = filled()
    one = Table(objects, DETECTIONS, threads=1)
    one.append(many(30, 2, version=1), COVERAGE)
    compact(one, NOW)
    started = Table(objects, DETECTIONS, threads=1)
    assert {run.sections for run in started.runs()} == {None}
    assert started.lookup(object_ids(ROWS)).num_rows == 400
    assert started.quarantined() == {}


@pytest.mark.long
@pytest.mark.parametrize("level", [0, 1])
def test_damage_in_a_section_hides_no_row_and_is_found(level: int) -> None:
    objects, run = filled()
    if level:
        one = Table(objects, DETECTIONS, threads=1)
        one.append(many(400, 2, version=1), COVERAGE)
        compact(one, NOW, Policy(fanout=2))
        [run] = one.runs()
    assert run.name.level == level
    verify(objects, run.object)
    truth = Table(objects, DETECTIONS, threads=1).lookup(object_ids(ROWS))
    data, start = objects.get(run.key), run.sections.listed[0].start
    chance = Random(level)
    for place in chance.sample(range(start, start + run.sections.length), 20):
        one = Table(objects, DETECTIONS, threads=1)
        one.refresh()
        flipped = bytearray(data)
        flipped[place] ^= 1 << chance.randrange(8)
        objects.put(run.key, bytes(flipped))
        for wanted in object_ids(ROWS)[::19]:
            assert one.lookup([wanted]).num_rows == 2
        assert one.lookup(object_ids(ROWS)).equals(truth)
        assert one.lacking(object_ids(ROWS)) == {}
        with pytest.raises(Damaged, match=run.key):
            verify(objects, objects.head(run.key))
        objects.put(run.key, data)


def test_a_section_that_comes_back_damaged_once_is_read_again() -> None:
    objects, run = filled()
    section, left = run.sections.listed[5], [b"x"]

    def spoil(data: bytes) -> bytes:
        return left.pop() + data[1:] if len(data) == section.length and left else data

    one = Table(Changed(objects, read=spoil), DETECTIONS, threads=1)
    one.refresh()
    assert one.lookup([section.key]).num_rows == 2
    assert left == []
    assert one.reader.index(run, 5).filter is not None


@pytest.mark.parametrize("cache_bytes", [0, 3000])
def test_a_section_that_is_damaged_for_a_while_mixes_up_no_row_groups(cache_bytes: int) -> None:
    """The key begins section 6 and may reach back into section 5, for which the footer answers."""
    rows = many(400, 8)
    objects, run = filled(rows)
    damaged, left = run.sections.listed[5], [b"x", b"y"]

    def spoil(data: bytes) -> bytes:
        return left.pop() + data[1:] if len(data) == damaged.length and left else data

    one = Table(Changed(objects, read=spoil), DETECTIONS, cache_bytes, threads=1)
    one.refresh()
    assert one.lookup([run.sections.listed[6].key]).num_rows == 8
    assert left == []
    assert [one.lookup([wanted]).num_rows for wanted in object_ids(rows)] == [8] * 50
    assert one.quarantined() == {}


@pytest.mark.parametrize("threads", [1, 8])
def test_a_lookup_reads_each_section_once_however_small_the_cache(threads: int) -> None:
    watched = Watched(filled()[0])
    one = Table(watched, DETECTIONS, cache_bytes=0, threads=threads)
    one.refresh()
    before = watched.count("get")
    wanted = [f"{20 * section + 7:06}" for section in range(10)]
    assert one.lookup(wanted).num_rows == 20
    assert watched.count("get") == before + 20  # a section and a row group each


def test_a_whole_index_that_is_known_replaces_sections_without_filters() -> None:
    objects, run = filled(many(240, 30))
    assert run.filter is not None
    assert {section.filter_length for section in run.sections.listed} == {0}
    watched = Watched(objects)
    one = Table(watched, DETECTIONS, threads=1)
    one.refresh()
    assert one.reader.has_index(run)  # the end of the footer was all of it
    before = watched.count("get")
    assert one.lookup(["000003"]).num_rows == 30
    assert watched.count("get") == before + 1
    assert one.cached("000003").num_rows == 30
    one.reader.indexes = Cache(1 << 20)
    assert one.cached("000003") is None
    assert one.lookup(["000003"]).num_rows == 30
    assert not one.reader.has_index(run)  # it read a section


def test_damage_of_a_row_group_and_of_the_footer_costs_the_row_group() -> None:
    objects, run = filled()
    index = Table(objects, DETECTIONS, threads=1).reader.index(run)
    data = bytearray(objects.get(run.key))
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert len(data) - footer > TAIL_BYTES  # so that a start does not read what is damaged of it
    data[footer + 5] ^= 1
    data[index.extent(12)[0] + 40] ^= 1
    objects.put(run.key, bytes(data))
    watched = Watched(objects)
    one = Table(watched, DETECTIONS, threads=1)
    one.refresh()
    before = watched.count("get")
    assert one.lookup(["000062"]).num_rows == 0
    assert watched.count("get") == before + 3  # the section, and the row group twice
    assert "row group 12" in one.quarantined()[run.key]
    assert list(one.lacking(["000062"])) == [run.key]
    assert one.lacking(["000059", "000065"]) == {}
    assert one.lookup(["000001", "000065"]).num_rows == 4


def test_damage_of_a_filter_in_the_footer_is_that_of_a_footer() -> None:
    objects, run = filled(many(20, 2))
    assert run.filter is not None
    assert run.sections is None
    data = bytearray(objects.get(run.key))
    data[data.rindex(b"stampede.filter") + 30] ^= 1
    objects.put(run.key, bytes(data))
    one = Table(objects, DETECTIONS, threads=1)
    assert one.lookup(["000003"]).num_rows == 0
    assert list(one.lacking(["000003"])) == [run.key]


@pytest.mark.parametrize(
    "rows", [ROWS, many(20, 2), many(400, 50)], ids=["large", "small", "few keys"]
)
def test_a_filter_that_leaves_out_a_key_is_found(rows: pa.Table, monkeypatch) -> None:
    hash_keys = run_writer.hash_keys
    monkeypatch.setattr(run_writer, "hash_keys", lambda keys: hash_keys(keys)[:-1])
    objects, run = filled(rows)
    with pytest.raises(Damaged, match=f"{run.key} has a filter that leaves out"):
        verify(objects, run.object)


def test_a_section_of_other_row_groups_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    partial = run_writer.partial_footers
    monkeypatch.setattr(run_writer, "partial_footers", lambda *of: partial(*of)[::-1])
    objects, run = filled()
    with pytest.raises(Damaged, match=f"{run.key}: a section does not describe"):
        verify(objects, run.object)


def changed_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on writers give the third section a least key that is a later one of its keys."""
    note = run_writer.RunWriter._note_keys

    def changed(self, leading: pa.Array) -> None:
        note(self, leading)
        if len(self._keys) > 2:
            self._keys[2] = self._keys[2][:-1] + "9"

    monkeypatch.setattr(run_writer.RunWriter, "_note_keys", changed)


def test_a_section_of_other_keys_is_found_before_its_inputs_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objects = MemoryObjects()
    one = Table(objects, DETECTIONS, threads=1)
    inputs = {one.append(many(400, 1, version), COVERAGE) for version in range(2)}
    with monkeypatch.context() as patch:
        changed_key(patch)
        [merged] = compact(one, NOW, Policy(fanout=2, grace=timedelta(0))).written
    assert Table(objects, DETECTIONS, threads=1).lookup(["000083"]).num_rows == 0
    with pytest.raises(Damaged, match=f"{merged}: a section does not describe"):
        verify(objects, objects.head(merged))
    report = compact(
        Table(objects, DETECTIONS), NOW + timedelta(days=40_000), Policy(grace=timedelta(0))
    )
    assert list(report.damaged) == [merged]
    assert {info.key for info in objects.list("tables/")} >= inputs


def test_a_list_of_no_sections_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_writer, "placeholder", lambda *of: "[]")
    monkeypatch.setattr(run_writer, "fill", lambda *of: ("[]", b""))
    objects = MemoryObjects()
    one = Table(objects, DETECTIONS, threads=1)
    key = one.append(ROWS, COVERAGE)
    assert one.lookup(["000007"]).num_rows == 0
    assert list(one.lacking(["000007"])) == [key]
    with pytest.raises(Damaged, match=f"{key} does not have the footer of a run"):
        verify(objects, objects.head(key))


@pytest.mark.parametrize("number", [0, 4, 9])
def test_a_list_that_leaves_out_a_section_hides_no_row(number: int) -> None:
    """A checkpoint may say so. The neighbour has other row groups, or keys, than it should."""
    objects, run = filled()
    listed = json.loads(run.sections.text)
    wrong = [[listed[0][0], 0, *listed[1][2:]], *listed[2:]] if not number else [*listed]
    if number:
        del wrong[number]
    text = json.dumps(wrong)
    part = replace(run, sections=Sections(text, run.last, DETECTIONS))
    put_checkpoint(objects, DETECTIONS, [part])
    one = Table(objects, DETECTIONS, threads=1)
    assert one.runs()[0].sections.text == text
    for each in object_ids(ROWS):
        assert one.lookup([each]).num_rows == 2


@pytest.mark.parametrize("end", ["000045", "000049"])
def test_statistics_that_leave_out_a_key_are_found(end: str, monkeypatch) -> None:
    """Those of a row group in the footer of a run without sections."""
    seal = run_writer.seal

    def wrong(data: pa.Buffer) -> pa.Buffer:
        changed = bytearray(data)
        footer = len(changed) - 8 - int.from_bytes(changed[-8:-4], "little")
        changed[footer:] = changed[footer:].replace(end.encode(), b"000047")
        return seal(pa.py_buffer(changed))

    monkeypatch.setattr(run_writer, "seal", wrong)
    monkeypatch.setattr(run_writer, "SMALL_GROUPS", 40)
    monkeypatch.setattr(run_writer, "SMALL_FILTER", 1 << 10)
    monkeypatch.setattr(run_writer, "GROUP_ROWS", 5)
    objects, run = filled(many(100))
    assert run.sections is None
    assert Table(objects, DETECTIONS, threads=1).lookup([end]).num_rows == 0
    with pytest.raises(Damaged, match="keys in row group 9 that its statistics leave out"):
        verify(objects, run.object)


def test_statistics_of_a_section_that_leave_out_a_key_are_found(monkeypatch) -> None:
    partial = run_writer.partial_footers
    monkeypatch.setattr(
        run_writer,
        "partial_footers",
        lambda *of: [footer.replace(b"000044", b"000043") for footer in partial(*of)],
    )
    objects, run = filled()
    assert Table(objects, DETECTIONS, threads=1).lookup(["000044"]).num_rows == 0
    with pytest.raises(Damaged, match="keys in row group 8 that its statistics leave out"):
        verify(objects, run.object)


@pytest.mark.parametrize("sections", [True, False])
def test_a_key_too_long_for_statistics_hides_no_other(sections: bool, monkeypatch) -> None:
    """Arrow keeps no statistics of a row group with one. This one reaches over two of them."""
    if not sections:
        monkeypatch.setattr(run_writer, "SMALL_GROUPS", 99)
        monkeypatch.setattr(run_writer, "SMALL_FILTER", 1 << 10)
    long = "000050" + "x" * 5000
    names = [f"{n:06}" for n in range(90)]
    keys = sorted([*(name for name in names if name not in ("000048", "000049")), long, long])
    assert keys.index(long) == 49
    rows = [detection(key, n) for n, key in enumerate(keys)]
    objects, run = filled(table(rows))
    assert (run.sections is not None) == sections
    one = Table(objects, DETECTIONS, threads=1)
    assert {key: one.lookup([key]).num_rows for key in keys} == dict.fromkeys(keys, 1) | {long: 2}
    verify(objects, run.object)


def test_keys_too_long_for_statistics_at_the_ends_of_sections() -> None:
    keys = ["aaa", *(letter * 5000 for letter in "bcdefghijklmnop")]
    objects, run = filled(table([detection(key, n) for key in keys for n in range(9)]))
    assert len(run.sections.listed) == 4
    one = Table(objects, DETECTIONS, threads=1)
    assert [one.lookup([key]).num_rows for key in keys] == [9] * 16
    verify(objects, run.object)


def test_two_compactors_write_the_same_bytes() -> None:
    stores = []
    for threads in (1, 8):
        objects = MemoryObjects()
        one = Table(objects, DETECTIONS, threads=threads)
        for version in range(3):
            one.append(many(400, 2, version).slice(50 * version), COVERAGE)
        report = compact(
            one, NOW, Policy(fanout=3, run_rows=150, slice_rows=60, grace=timedelta(0))
        )
        assert len(report.written) > 2
        assert sum(run.sections is not None for run in one.runs()) > 2
        stores.append({info.key: objects.get(info.key) for info in objects.list("tables/")})
    assert stores[0] == stores[1]


def test_a_key_may_reach_over_sections() -> None:
    numbers = {"a": 128, "b": 1, "c": 95, "d": 1}
    objects, run = filled(
        table([detection(key, n) for key in numbers for n in range(numbers[key])])
    )
    assert [section.key for section in run.sections.listed] == ["a", "a", "a", "a", "c", "c"]
    one = Table(objects, DETECTIONS, threads=1)
    assert {key: one.lookup([key]).num_rows for key in numbers} == numbers
    assert one.lookup(["b", "d"]).num_rows == 2
    verify(objects, run.object)


@pytest.mark.long
@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=80),
    st.integers(1, 5),
)
def test_every_key_is_found_whatever_it_is(keys: list[str], repeats: int) -> None:
    keys = [*keys, "", "\0", "a" * 300, "a" * 300 + "b", "é" * 200]
    rows = table([detection(key, n) for key in sorted(set(keys)) for n in range(repeats)])
    with pytest.MonkeyPatch.context() as patch:
        for name, size in {"GROUP_ROWS": 3, "SECTION_GROUPS": 2, "SMALL_GROUPS": 2}.items():
            patch.setattr(run_writer, name, size)
        objects, run = filled(rows)
    one = Table(objects, DETECTIONS, threads=1)
    for key in keys:
        assert one.lookup([key]).num_rows == repeats
    assert one.lookup(keys).num_rows == rows.num_rows
    verify(objects, run.object)


def test_locations_have_sections_without_filters() -> None:
    """The ids of alerts grow with time, so that few runs reach over one."""
    row = {f.name: None if f.nullable else 1.0 if f.name == "mjd" else "x" for f in CUTOUT_LOCATION}
    numbers = [-(2**63), *range(-50, 50), 2**63 - 1]
    rows = pa.Table.from_pylist([row | {"alert_id": one} for one in numbers], CUTOUT_LOCATION)
    objects, run = filled(rows, CUTOUTS)
    assert (run.filter, len(run.sections.listed)) == (None, 3)
    assert not any(section.filter_length for section in run.sections.listed)
    one = Table(objects, CUTOUTS, threads=1)
    assert [one.lookup([number]).num_rows for number in numbers] == [1] * len(numbers)
    assert one.lookup(numbers).num_rows == len(numbers)
    verify(objects, run.object)


def test_a_section_begins_with_a_footer_of_its_row_groups() -> None:
    objects, run = filled()
    data = objects.get(run.key)
    whole = pq.ParquetFile(io.BytesIO(data))
    for section in run.sections.listed:
        piece = data[section.start : section.start + section.length]
        footer, one = open_section(run.key, section, piece)
        assert one is not None
        part = pq.ParquetFile(io.BytesIO(data), metadata=metadata_of(footer))
        groups = range(section.group, section.group + 4)
        assert part.read().equals(whole.read_row_groups(list(groups)))
        assert part.read_row_group(0)["object_id"][0].as_py() == section.key


def test_other_programs_read_a_run_with_sections(tmp_path: Path) -> None:
    objects, run = filled()
    path = tmp_path / "run.parquet"
    path.write_bytes(objects.get(run.key))
    wanted = ROWS.slice(200, 2)["flux"].to_pylist()
    by_duckdb = duckdb.sql(f"SELECT flux FROM '{path}' WHERE object_id = '000100'").fetchall()
    assert [flux for (flux,) in by_duckdb] == wanted
    by_polars = polars.read_parquet(path).filter(polars.col("object_id") == "000100")
    assert by_polars["flux"].to_list() == wanted
    assert pq.read_table(path, filters=[("object_id", "=", "000100")])["flux"].to_pylist() == wanted
    assert pq.read_table(path, page_checksum_verification=True).num_rows == ROWS.num_rows
