"""What was imported is served by every route, marked with its archive, beside alerts."""

import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pyvo

import stampede_client
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


def test_search_and_the_browser_find_it(read: Reader) -> None:
    assert read(f"/find?id={ONE}").headers["location"] == f"/objects/{ONE}"
    listed = read(f"/find?id={str(ONE)[:3]}").data.decode()
    assert all(f"/objects/{name}" in listed for name in (ONE, OTHER))
    assert f"/objects/{ONE}" in read("/cone?ra=250.25&dec=38.5&radius=5").data.decode()


def test_magnitudes_and_difference_on_the_page(read: Reader) -> None:
    _, text = html(read(f"/objects/{ONE}?axis=mag"))
    assert "Total magnitude (AB) of 3 points" in text
    assert ">18.000<" in text
    page, text = html(read(f"/objects/{ONE}?flux=difference"))
    assert "3 points without a difference flux" in text
    assert f"/objects/{ONE}" in [link.get("href") for link in page.all("a")]


def test_tap_has_the_points_and_the_objects(read: Reader) -> None:
    tap = pyvo.dal.TAPService(f"{read.url}/tap")
    found = tap.search(
        "SELECT object_id, total_flux FROM stampede.detections "
        f"WHERE object_id = '{ONE}' AND survey = 'ztfdr24' ORDER BY mjd"
    )
    assert found["total_flux"][0] == pytest.approx(FLUX)
    found = tap.search(
        "SELECT object_id, detections FROM stampede.objects WHERE survey = 'ztfdr24' "
        "AND 1 = CONTAINS(POINT(ra, dec), CIRCLE(250.25, 38.5, 0.01))"
    )
    assert {*zip(found["object_id"], found["detections"], strict=True)} == {
        (str(ONE), 3),
        (str(OTHER), 2),
    }


def test_many_light_curves_and_the_client(read: Reader) -> None:
    with stampede_client.connect(read.url) as client:
        curve = client.lightcurve(ONE, survey="ztfdr24", magnitudes=True)
        assert curve["mag"].value.tolist() == pytest.approx([18.0, 18.125, 18.25])
        assert {*curve["survey"]} == {"ztfdr24"}
        assert [len(each) for each in client.lightcurves([ONE, OTHER])] == [3, 2]
        found = client.cone(250.25, 38.5, radius=5)
        assert {*found["survey"]} == {"ztfdr24"}
        near = client.cone([250.25, 10.0], [38.5, -5.0], radius=5)
        assert near["position"].tolist() == [0, 0]


def test_routes_of_others_give_alerts_alone(read: Reader) -> None:
    query = "ra=250.25&dec=38.5&radius=5&requestType=count"
    assert read(f"/compatible/lasair/api/cone/?{query}").json() == {"count": 0}
    assert read(f"/compatible/lasair/api/object/?objectId={ONE}").status == 404


def test_what_alerts_said_at_a_time_is_nothing(read: Reader) -> None:
    """An archive has no packets: its points up to a time are given, with a warning."""
    got = read(f"{CURVE}?asof=58302")
    assert len(got.json()["detections"]) == 2
    assert "no packet of that time is kept" in got.headers["stampede-incomplete"]
