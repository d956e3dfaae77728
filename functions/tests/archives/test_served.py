"""What was imported is served by every route, marked with its archive, beside alerts."""

import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stampede.archives.importer import Importer, Store
from stampede.archives.layouts import Asked
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from tests.support.archives import ONE, OTHER, write_ztf
from tests.support.read.html_page import html
from tests.support.read.read_service import Reader, sample_store, serving

CURVE = f"/v1/objects/{ONE}/lightcurve"
FLUX = 10 ** ((31.4 - 18.0) / 2.5)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> MemoryObjects:
    objects = sample_store()
    importer = Importer("ztfdr24", Asked.of(None, [], []), 61000.0)
    tables = Store.of(objects)
    for points in importer.runs([write_ztf(tmp_path_factory.mktemp("files") / "ztf.parquet")]):
        tables.append(points)
    return objects


@pytest.fixture(scope="module")
def read(store: MemoryObjects) -> Iterator[Reader]:
    yield from serving(make_app(Settings(store="memory://"), store))


def test_the_light_curve(read: Reader) -> None:
    curve = read(f"{CURVE}?magnitudes=true").json()
    assert curve["survey"] == "ztfdr24"
    points = curve["detections"]
    assert points[0]["total_flux"] == pytest.approx(FLUX)
    assert [point["flux"] for point in points] == [None] * 3
    assert [point["mag"] for point in points] == pytest.approx([18.0, 18.125, 18.25])
    assert [point["mag_err"] for point in points] == pytest.approx([0.03125] * 3)


@pytest.mark.parametrize("format", ["csv", "parquet", "arrow", "votable"])
def test_the_light_curve_in_a_format(read: Reader, format: str) -> None:
    got = read(f"{CURVE}?format={format}")
    assert got.status == 200
    if format == "parquet":
        rows = pq.read_table(io.BytesIO(got.data))
    elif format == "arrow":
        rows = pa.ipc.open_stream(got.data).read_all()
    else:
        assert got.data.count(b"ztfdr24") == 3
        return
    assert rows["survey"].to_pylist() == ["ztfdr24"] * 3


def test_a_cone_counts_its_points(read: Reader) -> None:
    got = read("/v1/cone?ra=250.25&dec=38.5&radius=5").json()
    assert {(one["object_id"], one["survey"], one["detections"]) for one in got["objects"]} == {
        (str(ONE), "ztfdr24", 3),
        (str(OTHER), "ztfdr24", 2),
    }


def test_the_page_of_an_object(read: Reader) -> None:
    _, text = html(read(f"/objects/{ONE}"))
    assert "ZTFDR24" in text
    assert "Total flux (µJy) of 3 points" in text
    assert "show difference flux" not in text
