"""Runs whose offsets have no room in their footer: a reader believes them as far as they verify."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import stampede_client
from stampede.alerts.columns import DETECTION
from stampede.store.compaction.compact import Policy, compact
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from stampede_client.parquet_files import Unverified, read_whole
from stampede_client.runs import Name, remembered_in, unpack
from tests.support.read.read_service import point

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NIGHTS = 16
HOLES = [[0, 5], [7, 9]]


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """A topic a night, merged by fours: runs of level 1 that are gone, and one of level 2."""
    table = Table(DirectoryObjects(tmp_path), DETECTIONS, threads=1)
    for night in range(NIGHTS):
        rows = [point("ZTF18a", "ztf", night, 60000.0 + night)]
        topic = f"ztf_2026{night:04}_programid1@{night:022}"
        spans = {(topic, number): np.array(HOLES) for number in range(16)}
        table.append(pa.Table.from_pylist(rows, DETECTION), Coverage(spans))
    for hours in (1, 2):
        compact(table, NOW + timedelta(hours=hours), Policy(fanout=4, grace=timedelta()))
    table.close()
    return tmp_path


def run_of(bucket: Path) -> Path:
    [path] = (bucket / "tables/detections").iterdir()
    assert Name.parse(path.name).level == 2
    return path


def test_the_rows_are_read(bucket: Path) -> None:
    assert stampede_client.detections(str(bucket)).arrow().num_rows == NIGHTS


def test_a_lost_run_is_named(bucket: Path) -> None:
    """A checkpoint remembers its offsets, and another run does not hold them."""
    run_of(bucket).unlink()
    table = Table(DirectoryObjects(bucket), DETECTIONS, threads=1)
    rows = pa.Table.from_pylist([point("ZTF18b", "ztf", 99, 60099.0)], DETECTION)
    table.append(rows, Coverage.of({("other@x", 0): [1]}))
    with pytest.raises(stampede_client.Incomplete, match="no other run holds its offsets"):
        stampede_client.detections(str(bucket)).arrow()


def test_a_damaged_block_is_named(bucket: Path) -> None:
    path = run_of(bucket)
    data = bytearray(path.read_bytes())
    data[len(data) - 8 - int.from_bytes(data[-8:-4], "little") - 30] ^= 1
    path.write_bytes(data)
    with pytest.raises(stampede_client.Incomplete, match="do not have their digest"):
        stampede_client.detections(str(bucket)).arrow()


def test_the_offsets_are_those_that_were_stored(bucket: Path) -> None:
    newest = max((bucket / "checkpoints/detections").glob("0*.parquet"))
    rows, pairs = read_whole(newest.read_bytes())
    assert pairs[b"stampede.format"] == b"2"
    one = remembered_in(rows, str(bucket))[-1]
    assert len(one.coverage) == NIGHTS * 16
    assert set(map(tuple, one.coverage.values())) == {tuple(map(tuple, HOLES))}


@pytest.mark.parametrize("data", [b"", b"no frame", bytes(40)])
def test_what_is_no_block_is_refused(data: bytes) -> None:
    with pytest.raises(Unverified):
        unpack(data)
    with pytest.raises(Unverified):
        unpack(data, "0" * 32)
