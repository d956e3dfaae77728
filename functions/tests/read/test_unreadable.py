"""A large response that meets damage on the way: no client takes it for whole."""

import csv
import io
import json
import subprocess
import tarfile
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from urllib3.exceptions import HTTPError

from stampede.config.settings import Settings
from stampede.lookup import cone_search
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, POSITIONS
from tests.support.read.read_service import Reader, serving
from tests.support.store.damaged_store import ALERTS, PLACES, damage, store_of_three

LIGHT_CURVES = json.dumps({"ids": ["A", "B", "C", "unknown"]}).encode()
PLACES_ASKED = json.dumps({"positions": [[ra, -5.0] for ra in (*PLACES.values(), 200.0)]}).encode()
CONE = "/v1/cone?ra=20&dec=-5&radius=30deg"


@pytest.fixture
def objects() -> MemoryObjects:
    return store_of_three()


@pytest.fixture
def rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cone of three objects is read in rings, as a stream."""
    monkeypatch.setattr(cone_search, "MOST_ROWS", 1)


def broken_off(read: Reader, path: str, method: str = "GET", body: bytes | None = None) -> bytes:
    """What comes of a response whose connection is broken off."""
    for _ in range(2):  # the second time the damage is known
        response = read(path, method, body, preload_content=False)
        assert response.status == 200
        parts: list[bytes] = []
        with pytest.raises(HTTPError, match="prematurely"):
            collect(response.stream(1), parts)
    return b"".join(parts)


def collect(source: Iterable[bytes], parts: list[bytes]) -> None:
    for part in source:
        parts.append(part)


def table(data: bytes) -> list[list[str]]:
    return [*csv.reader(io.StringIO(data.decode()))]


def ids(data: bytes) -> list[str]:
    """The first column of CSV."""
    return [line[0] for line in table(data)]


def curl(url: str, *more: str) -> tuple[int, bytes]:
    done = subprocess.run(["curl", "-sS", *more, url], capture_output=True, timeout=30)
    return done.returncode, done.stdout


def test_csv_of_light_curves_is_broken_off(objects: MemoryObjects) -> None:
    damage(objects, DETECTIONS, 0)  # the run of A, which has a row in that of B too
    for read in serving(make_app(Settings(), objects)):  # nothing cached
        data = broken_off(read, "/v1/lightcurves?format=csv", "POST", LIGHT_CURVES)
        assert ids(data) == ["object_id", "A", "B", "C"]
    for read in serving(make_app(Settings(), objects)):  # nothing cached
        for version in ("--http1.1", "--http1.0"):
            url = f"{read.url}/v1/lightcurves?format=csv"
            status, data = curl(url, version, "--data-binary", LIGHT_CURVES.decode())
            assert status == 18, version
            assert data.count(b"\n") == 4


def test_csv_that_lacks_nothing_is_whole_beside_damage(objects: MemoryObjects) -> None:
    damage(objects, DETECTIONS, 2)
    for read in serving(make_app(Settings(), objects)):  # nothing cached
        assert read("/v1/objects/C/lightcurve").status == 404
        body = json.dumps({"ids": ["A", "unknown"]}).encode()
        got = read("/v1/lightcurves?format=csv", "POST", body)
        assert ids(got.data) == ["object_id", "A", "A"]


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_rows_with_metadata_list_what_is_unreadable(objects: MemoryObjects, form: str) -> None:
    damage(objects, DETECTIONS, 0)
    damage(objects, DETECTIONS, 2)
    for read in serving(make_app(Settings(), objects)):  # nothing cached
        for _ in range(2):
            got = read(f"/v1/lightcurves?format={form}", "POST", LIGHT_CURVES)
            rows, end = end_of(form, got.data)
            assert rows["object_id"].to_pylist() == ["A", "B"]
            assert json.loads(end[b"stampede.unreadable"]) == ["A", "C"]
            assert json.loads(end[b"stampede.missing"]) == ["unknown"]
            assert json.loads(end[b"stampede.incomplete"]) == [
                "2 damaged objects of the table detections"
            ]


def end_of(form: str, data: bytes) -> tuple[pa.Table, dict[bytes, bytes]]:
    """Rows, and what the end of a response says."""
    if form == "parquet":
        file = pq.ParquetFile(io.BytesIO(data))
        return file.read(), file.metadata.metadata
    batches = [*pa.ipc.open_stream(data).iter_batches_with_custom_metadata()]
    return pa.Table.from_batches([rows for rows, _ in batches]), dict(batches[-1][1])


def test_a_tar_lists_the_alerts_that_are_unreadable(objects: MemoryObjects) -> None:
    damage(objects, CUTOUTS, 0)
    body = json.dumps({"ids": [*ALERTS.values(), 404]}).encode()
    for read in serving(make_app(Settings(), objects)):  # nothing cached
        with tarfile.open(fileobj=io.BytesIO(read("/v1/cutouts", "POST", body).data)) as tar:
            assert {name.partition("/")[0] for name in tar.getnames()} == {
                "12",
                "13",
                "missing.json",
            }
            end = json.load(tar.extractfile("missing.json"))
        assert end["unreadable_alerts"] == ["11"]
        assert end["unknown_alerts"] == ["404"]
        assert end["incomplete"] == ["1 damaged object of the table cutouts"]
        arrow = read("/v1/cutouts?format=arrow", "POST", body).data
        _, said = end_of("arrow", arrow)
        assert json.loads(said[b"stampede.unreadable"]) == ["11"]
        assert json.loads(said[b"stampede.missing"]) == ["404"]


def test_the_cutouts_of_an_object_say_that_its_light_curve_is_damaged(
    objects: MemoryObjects,
) -> None:
    damage(objects, DETECTIONS, 1)
    for read in serving(make_app(Settings(), objects)):  # nothing cached
        got = read("/v1/objects/A/cutouts?format=tar")
        with tarfile.open(fileobj=io.BytesIO(got.data)) as tar:
            end = json.load(tar.extractfile("missing.json"))
        assert end["incomplete"] == ["1 damaged object of the table detections"]


@pytest.mark.parametrize("path", [f"{CONE}&format={f}" for f in ("json", "csv", "votable")])
@pytest.mark.usefixtures("rings")
def test_a_cone_in_rings_is_broken_off(objects: MemoryObjects, path: str) -> None:
    damage(objects, POSITIONS, 2)
    for read in serving(make_app(Settings(), objects)):  # nothing cached
        data = broken_off(read, path)
        assert b"B" in data
        assert b"</VOTABLE>" not in data
        with pytest.raises(ValueError, match=r"Expecting|Extra"):
            json.loads(data)
        assert curl(read.url + path)[0] == 18


@pytest.mark.usefixtures("rings")
def test_a_simple_cone_search_in_rings_is_broken_off(objects: MemoryObjects) -> None:
    damage(objects, POSITIONS, 2)
    for read in serving(make_app(Settings(), objects)):  # nothing cached
        assert b"</VOTABLE>" not in broken_off(read, "/v1/scs?RA=20&DEC=-5&SR=30")


@pytest.mark.usefixtures("rings")
def test_a_cone_in_rings_as_parquet_says_it_in_its_footer(objects: MemoryObjects) -> None:
    damage(objects, POSITIONS, 2)
    for read in serving(make_app(Settings(), objects)):  # nothing cached
        rows, end = end_of("parquet", read(f"{CONE}&format=parquet").data)
        assert rows["object_id"].to_pylist() == ["B", "A"]
        assert json.loads(end[b"stampede.incomplete"]) == [
            "1 damaged object of the table positions"
        ]


def test_a_cross_match_says_which_positions_are_unreadable(objects: MemoryObjects) -> None:
    damage(objects, POSITIONS, 2)
    for read in serving(make_app(Settings(), objects)):  # nothing cached
        path = "/v1/cone?radius=5"
        data = broken_off(read, f"{path}&format=csv", "POST", PLACES_ASKED)
        found = sorted(line[:2] for line in table(data))
        assert found == [["0", "A"], ["1", "B"], ["position", "object_id"]]
        for form in ("arrow", "parquet"):
            rows, end = end_of(form, read(f"{path}&format={form}", "POST", PLACES_ASKED).data)
            assert sorted(rows["object_id"].to_pylist()) == ["A", "B"]
            assert json.loads(end[b"stampede.unreadable"]) == ["2"]
            assert json.loads(end[b"stampede.missing"]) == ["3"]
