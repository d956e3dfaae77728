"""Offsets that have no room in a footer: the same answers, small footers, and damage shows."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.errors import Damaged
from stampede.store.compaction.compact import Policy, compact
from stampede.store.integrity.verification import verify
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs import packed_coverage
from stampede.store.runs import writer as run_writer
from stampede.store.runs.packed_coverage import (
    INLINE_BYTES,
    Block,
    PackedCoverage,
    UnreadCoverage,
    packed,
    read_block,
)
from stampede.store.runs.reader import RunReader
from stampede.store.runs.run import RunInfo
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.checkpoint import parse_checkpoint
from stampede.store.tables.checkpoint_files import put_checkpoint
from stampede.store.tables.listing import VANISHED
from stampede.store.tables.table import Table
from tests.support.store.rows import detection, table
from tests.support.store.watched_objects import Watched

NIGHTLY = Path(__file__).parents[2] / "fixtures" / "nightly"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
PARTITIONS = 16
partitions = st.tuples(st.sampled_from(["ztf_20261120@a", "lsst/alerts@b~"]), st.integers(0, 12))
offsets = st.dictionaries(partitions, st.lists(st.integers(0, 40), max_size=9), min_size=1)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_writer, "GROUP_ROWS", 4)


def night(number: int) -> Coverage:
    """The offsets of one nightly topic."""
    topic = f"ztf_2026{number:04}_programid1@{number:022}"
    return Coverage(
        {(topic, one): np.array([[0, 9000 + number * one]]) for one in range(PARTITIONS)}
    )


NIGHTS = packed(Coverage.union(map(night, range(5))))


def merged(nights: int, fanout: int = 4) -> tuple[MemoryObjects, Table]:
    """A table of one run for each night, merged as far as they go."""
    objects = MemoryObjects(lambda: NOW)
    one = Table(objects, DETECTIONS, threads=1)
    for number in range(nights):
        rows = table([detection(f"{n:06}", number) for n in range(9)])
        one.append(rows, night(number))
    for hours in (1, 2):
        compact(one, NOW + timedelta(hours=hours), Policy(fanout=fanout, run_rows=40))
    return objects, one


def pairs_of(objects: MemoryObjects, part: RunInfo) -> dict[bytes, bytes]:
    return pq.read_metadata(pa.BufferReader(objects.get(part.key))).metadata


def with_other_byte(objects: MemoryObjects, part: RunInfo) -> None:
    """Change a byte of a part's block."""
    data = bytearray(objects.get(part.key))
    data[len(data) - 8 - int.from_bytes(data[-8:-4], "little") - 20] ^= 1
    objects.put(part.key, bytes(data))


@given(offsets)
def test_packed_offsets_are_the_same_offsets(of: dict) -> None:
    plain = Coverage.of(of)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_coverage, "INLINE_BYTES", 2)
        made = packed(plain)
    if not plain:
        assert made is plain
        return
    assert isinstance(made, PackedCoverage)
    read = read_block("a", made.block, made.data)
    assert read == plain
    assert plain == read
    assert hash(read) == hash(plain)
    assert read.to_json() == plain.to_json()
    assert not read - plain
    assert not plain - read
    assert len(read) == len(plain)


def test_intervals_that_touch_are_one_again() -> None:
    spans = {("t", 0): np.array([[n, n + 1] for n in range(0, 3000, 3)])}
    holes = packed(Coverage(spans))
    assert isinstance(holes, PackedCoverage)
    again = PackedCoverage(holes.data)
    assert again.intervals("t", 0) == [(n, n + 1) for n in range(0, 3000, 3)]


def test_a_run_of_few_offsets_stays_as_it_was() -> None:
    objects, one = merged(4)
    for part in one.runs():
        pairs = pairs_of(objects, part)
        packs = len(part.coverage.to_json()) > INLINE_BYTES
        assert packs == isinstance(part.coverage, PackedCoverage)
    small = Table(objects, DETECTIONS, threads=1)
    key = small.append(table([detection("a", 1)]), night(1))
    pairs = pairs_of(objects, next(part for part in small.runs() if part.key == key))
    assert pairs[b"stampede.format"] == b"1"
    assert Coverage.from_json(pairs[b"stampede.coverage"]) == night(1)


def test_no_footer_grows_with_the_nights() -> None:
    objects, one = merged(64, fanout=8)
    assert len({part.name.run for part in one.runs()}) == 1 < len(one.runs())
    for part in one.runs():
        pairs = pairs_of(objects, part)
        assert pairs[b"stampede.format"] == b"2"
        assert len(pairs[b"stampede.coverage"]) < 100
        verify(objects, part.object)
    assert one.coverage() == Coverage.union(map(night, range(64)))
    for believe in (True, False):
        other = Table(objects, DETECTIONS, threads=1, believe=believe)
        assert other.coverage() == one.coverage()
        assert other.quarantined() == {}


def test_a_start_reads_a_block_once_and_none_that_a_checkpoint_has() -> None:
    objects, one = merged(16)
    blocks = {part.coverage.block for part in one.runs()}
    watched = Watched(objects)
    assert Table(watched, DETECTIONS, threads=1).coverage() == one.coverage()
    assert watched.count("get") == 1
    reader = RunReader(objects, DETECTIONS, 0)
    read = [reader.footer(part.object).coverage for part in one.listed()]
    assert len({id(coverage) for coverage in read if coverage.block in blocks}) == len(blocks)


def test_a_damaged_block_shows_and_its_offsets_do_not_count() -> None:
    objects, one = merged(16)
    [bad, *others] = one.runs()
    assert others
    with_other_byte(objects, bad)
    with pytest.raises(Damaged, match="digest"):
        verify(objects, objects.head(bad.key))
    other = Table(objects, DETECTIONS, threads=1, believe=False)
    assert "offsets" in other.quarantined()[bad.key]
    assert other.lacking(["000001"])
    assert not other.coverage()


def test_a_block_of_another_run_is_damage() -> None:
    part = merged(16)[1].runs()[0]
    block = part.coverage.block
    for data in (b"", NIGHTS.data):
        with pytest.raises(Damaged, match="digest"):
            read_block(part.key, block, data)


def test_a_checkpoint_remembers_the_offsets_of_a_run_that_is_gone() -> None:
    objects, one = merged(16)
    put_checkpoint(objects, DETECTIONS, one.listed())
    for part in one.listed():
        objects.delete(part.key)
    other = Table(objects, DETECTIONS, threads=1)
    assert set(other.quarantined().values()) == {VANISHED}
    assert {part.key for part in one.runs()} <= other.quarantined().keys()


def test_what_this_version_stored_is_read_by_later_ones() -> None:
    """tests/fixtures/nightly: eight nights in a run of format 2, and a checkpoint of it."""
    objects = DirectoryObjects(NIGHTLY)
    truth = Coverage(
        {
            (f"ztf_2026110{n}_programid1@{n:022}", p): np.array([[0, 100 + n], [200, 300 + p]])
            for n in range(8)
            for p in range(16)
        }
    )
    one = Table(objects, DETECTIONS, threads=1, believe=False)
    assert one.coverage() == truth
    assert one.quarantined() == {}
    for info in objects.list(""):
        verify(objects, info)
    [newest] = objects.list("checkpoints/detections/0")
    [named] = parse_checkpoint(newest.key, objects.get(newest.key), DETECTIONS).parts.values()
    assert named.coverage == truth


def test_offsets_that_were_not_read_have_no_answer() -> None:
    unread = UnreadCoverage(Block(7, "a" * 32))
    for ask in (bool, len, Coverage.partitions, Coverage.to_json, lambda one: one - Coverage()):
        with pytest.raises(LookupError, match="not read"):
            ask(unread)


@pytest.mark.parametrize(
    "value", [[], [7], [0, "a"], [-1, "a"], ["7", "a"], [7, 7], 7, "a", None, [10**9, "a" * 32]]
)
def test_a_footer_that_names_no_block_is_damage(
    value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Block, "to_json", lambda self: json.dumps(value))
    objects = MemoryObjects(lambda: NOW)
    one = Table(objects, DETECTIONS, threads=1)
    key = one.append(table([detection("a", 1)]), NIGHTS)
    assert list(Table(objects, DETECTIONS, threads=1).quarantined()) == [key]
