"""Runs that were written before their tables got more columns.

The run of `detections` in tests/fixtures holds the points of forty simulated alerts, with the
columns that there were before `flags`, `procstatus`, `limiting_mag` and `rb`. Those of `cutouts`
and `packets`, with their packs, hold alert 1 as it was stored before cutouts named their message.
"""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stampede.alerts.columns import KINDS
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.runtime.clock import now
from stampede.store.compaction.compact import Policy, compact
from stampede.store.integrity import verification
from stampede.store.integrity.unindexed_packs import index
from stampede.store.integrity.verification import verify
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.alert_versions import shown
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.tables.table import Table
from tests.support.read.read_service import Reader, serving

FIXTURES = Path(__file__).parents[1] / "fixtures"
(RUN,) = (FIXTURES / "tables" / "detections").glob("*.parquet")
KEY = RUN.relative_to(FIXTURES).as_posix()
ADDED = ("flags", "procstatus", "limiting_mag", "rb", "programid")
OLD = pq.read_table(RUN)


@pytest.fixture
def objects() -> MemoryObjects:
    store = MemoryObjects()
    store.put(KEY, RUN.read_bytes())
    return store


@pytest.fixture
def read(objects: MemoryObjects) -> Iterator[Reader]:
    yield from serving(make_app(Settings(), objects))


def light_curve(read: Reader, object_id: str) -> list[dict]:
    return read(f"/v1/objects/{object_id}/lightcurve?withdrawn=true").json()["detections"]


def test_the_run_lacks_the_columns() -> None:
    assert not set(ADDED) & set(OLD.column_names)
    assert OLD.num_rows > 30


def test_its_points_are_served_with_nulls(read: Reader) -> None:
    for object_id in OLD["object_id"].unique().to_pylist():
        rows = light_curve(read, object_id)
        assert len(rows) == OLD["object_id"].to_pylist().count(object_id)
        assert {row[name] for row in rows for name in ADDED} == {None}
        assert any(row["flux"] for row in rows)


def test_a_point_that_is_sent_again_gets_the_columns(objects: MemoryObjects, read: Reader) -> None:
    table = Table(objects, DETECTIONS, threads=1)
    old = table.lookup(OLD["object_id"].unique().to_pylist())
    again = old.slice(0, 5)
    for name, value in zip(ADDED, (3, "0", 20.5, 0.5, 1), strict=True):
        at = again.schema.get_field_index(name)
        again = again.set_column(
            at, again.schema.field(at), pa.array([value] * 5, again.schema.field(at).type)
        )
    table.append(again, Coverage.of({("again", 0): range(5)}))
    table.refresh()
    merged = table.lookup(OLD["object_id"].unique().to_pylist())
    assert merged["flags"].to_pylist() == [3] * 5 + [None] * (old.num_rows - 5)
    assert merged["procstatus"].to_pylist()[:6] == ["0"] * 5 + [None]
    assert merged.drop_columns(ADDED).equals(old.drop_columns(ADDED))


def test_it_is_merged_with_a_run_of_today(objects: MemoryObjects) -> None:
    table = Table(objects, DETECTIONS, threads=1)
    ids = OLD["object_id"].unique().to_pylist()
    old = table.lookup(ids)
    for number in range(3):
        renamed = [f"{number}-{name}" for name in old["object_id"].to_pylist()]
        other = old.set_column(0, old.schema.field(0), pa.array(renamed))
        at = other.schema.get_field_index("flags")
        flags = pa.array(range(old.num_rows), pa.int32())
        table.append(
            other.set_column(at, other.schema.field(at), flags),
            Coverage.of({("alerts", 0): [number]}),
        )
    assert compact(table, now() + timedelta(hours=9), Policy(fanout=4)).merged
    table.refresh()
    (run,) = [one for one in table.runs() if one.name.level == 1]
    assert run.rows == 4 * old.num_rows
    assert table.lookup(ids).equals(old)
    assert table.lookup([f"2-{name}" for name in ids])["flags"].to_pylist() == [
        *range(old.num_rows)
    ]


def test_it_verifies(objects: MemoryObjects) -> None:
    verify(objects, objects.head(KEY))


@pytest.mark.parametrize("most", [0, 8 << 20])
def test_runs_that_lack_a_column_of_the_key_verify(with_alert, monkeypatch, most: int) -> None:
    """Whether they are read by one request or by row groups."""
    monkeypatch.setattr(verification, "_ONE_GET", most)
    monkeypatch.setattr(verification, "SAMPLE", 0.0)  # no row group is decoded whole
    for info in with_alert.list("tables/"):
        verify(with_alert, info)
    table = Table(with_alert, CUTOUTS, threads=1)
    [run] = table.runs()
    file = table.reader.open(run)
    for group, block in file.fetch(file.numbers):
        assert file.decode(group, block, CUTOUTS.key).column_names == list(CUTOUTS.key)


def test_sql_over_runs_of_both_kinds(objects: MemoryObjects, tmp_path: Path) -> None:
    table = Table(objects, DETECTIONS, threads=1)
    table.append(table.lookup(OLD["object_id"].unique().to_pylist()), Coverage.of({("b", 0): [1]}))
    for info in objects.list("tables/"):
        (tmp_path / Path(info.key).name).write_bytes(objects.get(info.key))
    runs = f"read_parquet('{tmp_path}/*.parquet', union_by_name = true)"
    sql = f"SELECT count(*), count(flags) FROM {runs}"
    assert duckdb.sql(sql).fetchall() == [(2 * OLD.num_rows, 0)]


@pytest.fixture
def with_alert(objects: MemoryObjects) -> MemoryObjects:
    """A store with alert 1."""
    for folder in ("packs", "packets", "tables/cutouts", "tables/packets"):
        for path in (FIXTURES / folder).rglob("*.parquet"):
            objects.put(path.relative_to(FIXTURES).as_posix(), path.read_bytes())
    return objects


def test_cutouts_that_do_not_name_their_message(with_alert: MemoryObjects, read: Reader) -> None:
    """They are served, verified and indexed again, and are another version than any of today."""
    packet = read("/v1/alerts/1/packet")
    assert (packet.status, len(packet.data)) == (200, 4_888)
    for kind in KINDS:
        assert read(f"/v1/alerts/1/cutouts/{kind}").status == 200
    for info in with_alert.list(""):
        verify(with_alert, info)
    table = Table(with_alert, CUTOUTS, threads=1)
    old = table.lookup([1])
    assert old["message_crc32"].null_count == 3
    [run] = [info.key for info in with_alert.list("tables/cutouts/")]
    [pack] = [info.key for info in with_alert.list("packs/")]
    with_alert.delete(run)
    index(with_alert, pack)
    assert Table(with_alert, CUTOUTS, threads=1).lookup([1]).equals(old)


def test_versions_of_both_kinds_are_merged(with_alert: MemoryObjects, read: Reader) -> None:
    packet = read("/v1/alerts/1/packet").data
    table = Table(with_alert, CUTOUTS, threads=1)
    old = table.lookup([1])
    numbers = (2**32 - 1, 0, 7)
    for number in numbers:
        at = old.schema.get_field_index("message_crc32")
        column = pa.array([number] * 3, pa.uint32())
        rows = old.set_column(at, old.schema.field(at), column)
        table.append(rows, Coverage.of({("alerts", 0): [number]}))
    assert compact(table, now() + timedelta(hours=9), Policy(fanout=4)).merged
    merged = Table(with_alert, CUTOUTS, threads=1).lookup([1])
    assert merged["message_crc32"].to_pylist() == [None, 0, 7, 2**32 - 1] * 3
    assert shown(merged)["message_crc32"].to_pylist() == [2**32 - 1] * 3
    assert read("/v1/alerts/1/packet").data == packet
