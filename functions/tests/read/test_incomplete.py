"""A response that may lack rows says so, in a header and in its body; the rest is served."""

import io
import json
import re
import tarfile
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stampede.alerts.columns import DETECTION
from stampede.config.settings import Settings
from stampede.lookup import refreshing_table
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import DETECTIONS, POSITIONS, TableSpec
from stampede.store.tables.table import Table
from tests.support.read.read_service import (
    ZTF_ALERT,
    ZTF_OBJECT,
    Reader,
    fill,
    keep,
    point,
    sample_cutouts,
    serving,
)
from tests.support.store.damaged_store import run_with, store_of_three

HEADER = "stampede-incomplete"
FOREIGN = f"tables/detections/0000-{'a' * 32}.parquet"


def curve(object_id: str) -> str:
    return f"/v1/objects/{object_id}/lightcurve"


@pytest.fixture
def objects() -> MemoryObjects:
    """Two runs of detections: objects A to C, and objects M to O."""
    objects = MemoryObjects()
    fill(objects, sample_cutouts(), [point("M", "ztf", 1, 59000.0)], Coverage.of({("t", 0): [0]}))
    for number, name in enumerate("ABC", 10):
        rows = [point(name, "ztf", number, 59000.0)]
        coverage = Coverage.of({("t", 0): [number]})
        Table(objects, DETECTIONS).append(pa.Table.from_pylist(rows, DETECTION), coverage)
    return objects


def run_of(objects: MemoryObjects, object_id: str) -> str:
    """The key of the run that has an object."""
    (part,) = (run for run in Table(objects, DETECTIONS).runs() if run.first == object_id)
    return part.key


def damage(objects: MemoryObjects, key: str) -> None:
    """Flip a bit of the first page."""
    data = bytearray(objects.get(key))
    data[40] ^= 1
    objects.put(key, bytes(data))


@pytest.fixture
def read(objects: MemoryObjects) -> Iterator[Reader]:
    yield from serving(make_app(Settings(refresh_seconds=0), objects))


def test_a_damaged_run_costs_its_own_objects_and_says_so(objects, read) -> None:
    assert HEADER not in read(curve("A")).headers
    damage(objects, run_of(objects, "A"))
    for reader in serving(make_app(Settings(refresh_seconds=0), objects)):  # nothing cached
        for _ in range(2):
            got = reader(curve("A"))
            assert got.status == 404
            assert "1 damaged object of the table detections" in got.headers[HEADER]
            assert got.json()["incomplete"] == [got.headers[HEADER]]
            assert got.headers["cache-control"] == "no-store"
            for other in ("B", "C", "M"):
                got = reader(curve(other))
                assert (got.status, len(got.json()["detections"])) == (200, 1)
                assert HEADER not in got.headers
                assert "incomplete" not in got.json()


def test_a_foreign_object_may_hold_any_row_and_every_answer_says_so(objects, read) -> None:
    objects.put(FOREIGN, b"what is this?")
    for name in "ABCM":
        for _ in range(2):  # the second time from memory
            got = read(curve(name))
            assert got.status == 200
            assert "detections" in got.headers[HEADER]
            assert got.headers["cache-control"] == "no-store"
            assert got.json()["incomplete"] == [got.headers[HEADER]]
            assert len(got.json()["detections"]) == 1
    for form in ("csv", "parquet", "arrow", "votable"):
        assert HEADER in read(f"{curve('A')}?format={form}").headers
    page = read("/objects/A", headers={"Accept": "text/html"})
    assert page.status == 200
    assert b"This page may lack something: 1 damaged object" in page.data
    assert HEADER in page.headers
    objects.delete(FOREIGN)
    assert HEADER not in read(curve("A")).headers


def test_large_queries_say_it_first_and_last(objects, read) -> None:
    objects.put(FOREIGN, b"")
    body = json.dumps({"ids": ["A", "M", "missing"]}).encode()
    got = read("/v1/lightcurves?format=parquet", "POST", body)
    assert HEADER in got.headers
    file = pq.ParquetFile(io.BytesIO(got.data))
    assert file.read()["object_id"].to_pylist() == ["A", "M"]
    why = json.loads(file.metadata.metadata[b"stampede.incomplete"])
    assert why == [got.headers[HEADER]]

    objects.put(FOREIGN.replace("detections", "cutouts"), b"")
    body = json.dumps({"ids": [1642404680815015001]}).encode()
    got = read("/v1/cutouts", "POST", body)
    assert "cutouts" in got.headers[HEADER]
    with tarfile.open(fileobj=io.BytesIO(got.data)) as tar:
        assert len(tar.getnames()) == 4
        missing = json.load(tar.extractfile("missing.json"))
    assert missing["incomplete"] == [got.headers[HEADER]]
    arrow = read("/v1/cutouts?format=arrow", "POST", body).data
    *_, last = pa.ipc.open_stream(arrow).iter_batches_with_custom_metadata()
    assert json.loads(last[1][b"stampede.incomplete"]) == missing["incomplete"]


def test_an_alert_is_not_immutable_while_its_answer_may_lack_something(objects, read) -> None:
    path = "/v1/alerts/1642404680815015001"
    keep(objects, ZTF_ALERT, ZTF_OBJECT, 59400.0)
    assert "immutable" in read(path).headers["cache-control"]
    objects.put(FOREIGN.replace("detections", "cutouts"), b"PAR1 and nothing else PAR1")
    got = read(path)
    assert got.headers["cache-control"] == "no-store"
    assert got.json()["incomplete"] == [got.headers[HEADER]]
    image = read(f"{path}/cutouts/science")
    assert (image.status, image.headers["cache-control"]) == (200, "no-store")


def test_readiness_and_health_do_not_fail_because_of_one_object(objects, read) -> None:
    objects.put(FOREIGN, b"garbage")
    assert read(curve("A")).status == 200
    for path in ("/health/readiness", "/health/liveness", "/v1/ledger", "/"):
        assert read(path).status == 200
    metrics = read("/metrics").data.decode()
    # Other stores of this process may count too.
    assert re.search(r'stampede_quarantined_objects\{table="detections"\} [1-9]', metrics)


@pytest.mark.parametrize(
    ("spec", "module", "name", "path"),
    [
        (DETECTIONS, Table, "lookup", "/v1/objects/A/lightcurve"),
        (POSITIONS, refreshing_table, "rows_in", "/v1/cone?ra=10&dec=-5&radius=60"),
    ],
    ids=["lookup", "ranges"],
)
def test_what_is_mended_just_after_it_was_read_is_noted(
    monkeypatch: pytest.MonkeyPatch, spec: TableSpec, module: object, name: str, path: str
) -> None:
    objects = store_of_three()
    key = run_with(objects, spec, 0)
    before = objects.get(key)
    objects.put(key, before[:-1])
    read_rows = getattr(module, name)

    def then_mend(table: Table, wanted: object) -> object:
        rows = read_rows(table, wanted)
        rows = rows if isinstance(rows, pa.Table) else iter([*rows])
        objects.put(key, before)
        table.refresh()
        return rows

    monkeypatch.setattr(module, name, then_mend)
    for read in serving(make_app(Settings(), objects)):
        said = f"1 damaged object of the table {spec.name}"
        assert read(path).headers.get(HEADER) == said
        assert HEADER not in read(path).headers
