"""GET /v1/cone on a real server: which objects it finds, in which order, and in which formats."""

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from astropy.coordinates import SkyCoord
from hypothesis import given
from hypothesis import strategies as st

from stampede.alerts.columns import DETECTION
from stampede.alerts.positions import positions_of
from stampede.config.settings import Settings
from stampede.lookup import cone_search, light_curves
from stampede.lookup.cone_search import COUNTS, Cone, nearest_first
from stampede.lookup.refreshing_table import RefreshingTable
from stampede.lookup.sky import Place
from stampede.read.app import make_app
from stampede.read.pages import cone as pages_cone
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import DETECTIONS, POSITIONS
from stampede.store.tables.table import Table
from tests.support.read.html_page import html
from tests.support.read.read_service import Reader, point, serving

CENTRE = Place(0.814167, 16.145556)  # 00:03:15.4 +16:08:44


def store(points: list[dict], batches: int = 1) -> MemoryObjects:
    """A store with points that came in so many batches, and their positions."""
    objects = MemoryObjects()
    table, curves = Table(objects, POSITIONS), Table(objects, DETECTIONS)
    for start in range(batches):
        rows = pa.Table.from_pylist(points[start::batches], DETECTION)
        coverage = Coverage.of({("t", 0): [start]})
        table.append(positions_of(rows), coverage)
        curves.append(rows, coverage)
    table.close()
    curves.close()
    return objects


def around(objects: MemoryObjects, cone: Cone) -> pa.Table:
    table = Table(objects, POSITIONS, threads=1)
    return pa.concat_tables(nearest_first(RefreshingTable(table, 60.0, None), cone))


def sample() -> list[dict]:
    near, ra, dec = "ZTF21near", CENTRE.ra, CENTRE.dec
    return [
        point(near, "ztf", 1, 59000.0, ra=ra, dec=dec + 1 / 3600),
        point(near, "ztf", 2, 59010.0, ra=ra, dec=dec + 1.5 / 3600),
        point("ZTF21next", "ztf", 3, 59005.0, ra=ra + 3 / 3600, dec=dec),
        point("ZTF21far", "ztf", 4, 59005.0, ra=ra, dec=dec + 0.9),
        point("ZTF21forced", "ztf", 5, 59005.0, ra=ra, dec=dec, forced=True),
        point("ZTF21nowhere", "ztf", 6, 59005.0, ra=None, dec=None),
        point("ZTF21gone", "ztf", 7, 59005.0, ra=ra, dec=dec, withdrawn=True),
    ]


@pytest.fixture(scope="module")
def read() -> Iterator[Reader]:
    yield from serving(make_app(Settings(), store(sample())))


@pytest.mark.parametrize(
    "query",
    [
        "ra=0.814167&dec=16.145556&radius=5",
        "ra=0.814167&dec=%2B16.145556&radius=5arcsec",
        "ra=00:03:15.4&dec=%2B16:08:44&radius=5%22",
        "ra=0h3m15.4s&dec=16d8m44s&radius=0.0833arcmin",
        "ra=00+03+15.4&dec=16+08+44.0&radius=0.00139deg",
    ],
)
def test_a_position_is_written_in_degrees_or_sexagesimal(read: Reader, query: str) -> None:
    response = read(f"/v1/cone?{query}")
    assert response.status == 200
    found = response.json()
    assert found["radius"] == pytest.approx(5, rel=0.01)
    assert [each["object_id"] for each in found["objects"]] == ["ZTF21near", "ZTF21next"]
    near = found["objects"][0]
    assert 0.9 < near["distance"] < 1.6
    assert (near["survey"], near["detections"]) == ("ztf", 2)
    assert (near["first_mjd"], near["last_mjd"]) == (59000.0, 59010.0)


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("dec=1&radius=1", "ra"),
        ("ra=1&radius=1", "dec"),
        ("ra=1&dec=1", "radius"),
        ("ra=361&dec=1&radius=1", "ra"),
        ("ra=25:00:00&dec=1&radius=1", "ra"),
        ("ra=1:60:00&dec=1&radius=1", "ra"),
        ("ra=nan&dec=1&radius=1", "ra"),
        ("ra=1&dec=-90.1&radius=1", "dec"),
        ("ra=1&dec=1h0m0s&radius=1", "dec"),
        ("ra=1&dec=1&radius=-1", "radius"),
        ("ra=1&dec=1&radius=5parsec", "radius"),
        ("ra=1&dec=1&radius=181deg", "radius"),
        ("ra=1&dec=1&radius=1&since=later", "since"),
        ("ra=1&dec=1&radius=1&nights=60000-", "nights"),
        ("ra=1&dec=1&radius=1&limit=5", "limit"),
    ],
)
def test_a_bad_parameter_is_named(read: Reader, query: str, parameter: str) -> None:
    response = read(f"/v1/cone?{query}")
    assert (response.status, response.json()["parameter"]) == (400, parameter)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("since=59006", ["ZTF21near"]),
        ("nights=59005", ["ZTF21next"]),
        ("nights=59005-59010", ["ZTF21near", "ZTF21next"]),
        ("nights=59005&since=59005.5", []),
    ],
)
def test_objects_of_some_nights(read: Reader, query: str, names: list[str]) -> None:
    found = read(f"/v1/cone?ra=0.814167&dec=16.145556&radius=5&{query}").json()["objects"]
    assert [each["object_id"] for each in found] == names


def test_an_answer_has_a_tag(read: Reader) -> None:
    path = "/v1/cone?ra=0.814167&dec=16.145556&radius=5"
    tag = read(path).headers["ETag"]
    assert read(path, headers={"If-None-Match": tag}).status == 304


def test_a_moving_object_is_found_wherever_it_was() -> None:
    path = [point("77", "lsst", n, 60000.0 + n, ra=10 + n, dec=0.0) for n in range(5)]
    objects = store(path, batches=5)
    for number in range(5):
        found = around(objects, Cone(Place(10.0 + number, 0.0), 1 / 3600)).to_pylist()
        assert [(one["object_id"], one["ra"]) for one in found] == [("77", 10.0 + number)]
    [found] = around(objects, Cone(Place(12.1, 0.0), 5.0)).to_pylist()
    assert found["ra"] == 12.0


def objects_of(read: Reader, query: str) -> list[dict]:
    return read(f"/v1/cone?{query}").json()["objects"]


def test_a_cone_counts_the_detections_of_the_light_curve() -> None:
    """Those of all batches and places, each once; an id that two surveys use is of two objects."""
    at = {"ra": 10.0, "dec": -5.0}
    points = [
        *(point("7", "lsst", n, 60000.0 + n, ra=10.0, dec=-5.0 + n / 3600) for n in range(1, 8)),
        *(point("7", "ztf", 70 + n, 59000.0 + n, **at) for n in range(3)),
        point("7", "lsst", 20, 59990.0, forced=True, **at),
        point("7", "ztf", 80, 58990.0, limit=True, **at),
        point("7", "lsst", 9, 60100.0, withdrawn=True, **at),
    ]
    objects = store([*points, *points[:5]], batches=4)
    for read in serving(make_app(Settings(), objects)):
        query = "ra=10&dec=-5&radius=10"
        found = {each["survey"]: each for each in objects_of(read, query)}
        uncounted = objects_of(read, f"{query}&counts=false")
        shown = html(read(f"/cone?{query}"))[1]
        curve = read("/v1/objects/7/lightcurve?forced=false&format=csv").data.decode()
    assert [found["lsst"][name] for name in COUNTS.names] == [7, 60001.0, 60007.0]
    assert [found["ztf"][name] for name in COUNTS.names] == [3, 59000.0, 59002.0]
    assert [each["detections"] for each in uncounted] == [None, None]
    assert re.findall(r"<td>(\d+)</td>", shown) == [
        str(each["detections"]) for each in found.values()
    ]
    assert curve.count("lsst") == 7


def test_an_object_without_points_is_found_and_not_counted() -> None:
    """Positions are stored before points."""
    objects = store(sample())
    for info in objects.list("tables/detections/"):
        objects.delete(info.key)
    for read in serving(make_app(Settings(), objects)):
        found = objects_of(read, "ra=0.814167&dec=16.145556&radius=5")
    assert [each["object_id"] for each in found] == ["ZTF21near", "ZTF21next"]
    assert [each["detections"] for each in found] == [None, None]


def test_many_objects_are_counted_in_parts(monkeypatch) -> None:
    monkeypatch.setattr(light_curves, "MOST", 4)
    points = [
        point(f"o{n % 30}", "lsst", n + 1, 60000.0 + n, ra=10 + n % 30 / 3600, dec=0.0)
        for n in range(75)
    ]
    for read in serving(make_app(Settings(), store(points, batches=3))):
        found = objects_of(read, "ra=10&dec=0&radius=60")
        csv = read("/v1/cone?ra=10&dec=0&radius=60&format=csv").data.decode().splitlines()
    assert [each["object_id"] for each in found] == [f"o{n}" for n in range(30)]
    assert [each["detections"] for each in found] == [3] * 15 + [2] * 15
    assert len(csv) == 31


def test_only_objects_of_the_answer_are_counted(monkeypatch) -> None:
    """One more tells the page, and a Simple Cone Search with MAXREC, that there are others."""
    monkeypatch.setattr(pages_cone, "MOST", 3)
    monkeypatch.setattr(pages_cone, "PICTURED", 0)  # it reads these for their latest alerts
    asked: list[str] = []
    of_objects = light_curves.LightCurves.of_objects

    def noted(curves: light_curves.LightCurves, object_ids: list[str]) -> pa.Table:
        asked.extend(object_ids)
        return of_objects(curves, object_ids)

    monkeypatch.setattr(light_curves.LightCurves, "of_objects", noted)
    points = [
        point(f"o{n:02}", "lsst", n + 1, 60000.0 + n, ra=10 + n / 3600, dec=0.0) for n in range(30)
    ]
    for read in serving(make_app(Settings(), store(points))):
        text = html(read("/cone?ra=10&dec=0&radius=60"))[1]
        assert text.count('<td class="text"><a href="/objects/o') == 3
        assert asked == ["o00", "o01", "o02", "o03"]
        asked.clear()
        assert read("/v1/scs?RA=10&DEC=0&SR=1&MAXREC=1").data.count(b"<TR>") == 1
        assert asked == ["o00", "o01"]
        asked.clear()
        assert len(objects_of(read, "ra=10&dec=0&radius=60")) == len(asked) == 30


# Poles, both ends of right ascension, and anywhere.
POLES = st.sampled_from([-90.0, 90.0, 89.9999, 0.0])
ANYWHERE = st.tuples(
    st.sampled_from([0.0, 359.9999, 180.0]) | st.floats(0, 360, exclude_max=True),
    POLES | st.floats(-90, 90),
)
NEAR = st.tuples(st.floats(-0.01, 0.01), st.floats(-0.01, 0.01))
RADII = st.sampled_from([0.0, 1 / 3600, 0.01, 1.0, 90.0, 179.9, 180.0]) | st.floats(0, 180)


@given(ANYWHERE, RADII, st.lists(ANYWHERE, max_size=20), st.lists(NEAR, max_size=20))
def test_a_cone_holds_what_astropy_says(centre, radius, anywhere, near) -> None:
    cone = Cone(Place(*centre), radius)
    beside = [
        ((cone.centre.ra + east) % 360, float(np.clip(cone.centre.dec + north, -90, 90)))
        for east, north in near
    ]
    places = [*anywhere, *beside]
    points = [
        point(f"o{number}", "lsst", number + 1, 60000.0, ra=ra, dec=dec)
        for number, (ra, dec) in enumerate(places)
    ]
    found = around(store(points or [point("x", "lsst", 1, 6e4, ra=None)]), cone)
    there = np.array(places).reshape(-1, 2)
    away = SkyCoord(*there.T, unit="deg").separation(SkyCoord(*centre, unit="deg")).arcsec
    unsure = np.abs(away - radius * 3600) < 1e-6  # rounding decides
    expected = {f"o{n}" for n in np.flatnonzero((away <= radius * 3600) & ~unsure)}
    names = set(found["object_id"].to_pylist())
    assert names - {f"o{n}" for n in np.flatnonzero(unsure)} == expected
    distances = found["distance"].to_numpy()
    assert (np.diff(distances) >= 0).all()
    numbers = [int(name[1:]) for name in found["object_id"].to_pylist()]
    np.testing.assert_allclose(distances, away[numbers], atol=1e-6)


@pytest.mark.parametrize("most", [7, 200])
def test_a_large_cone_comes_in_rings(monkeypatch, most: int) -> None:
    """Whole, in order, each object once, whether it fits into memory or not."""
    monkeypatch.setattr(cone_search, "MOST_ROWS", most)
    random = np.random.default_rng(5)
    points = [
        point(f"o{n % 90}", "lsst", n + 1, 60000.0 + n, ra=ra, dec=dec)
        for n, (ra, dec) in enumerate(random.uniform([0, 60], [40, 90], (120, 2)))
    ]
    objects, cone = store(points, batches=4), Cone(Place(10.0, 88.0), 40.0)
    table = Table(objects, POSITIONS, threads=1)
    rings = list(nearest_first(RefreshingTable(table, 60.0, None), cone))
    assert (len(rings) > 1) == (most == 7)
    found = pa.concat_tables(rings)
    assert (np.diff(found["distance"].to_numpy()) >= 0).all()
    assert sorted(found["object_id"].to_pylist()) == sorted({p["object_id"] for p in points})


def test_a_damaged_run_is_told() -> None:
    objects = store(sample(), batches=2)
    key = next(info.key for info in objects.list("tables/positions/"))
    data = bytearray(objects.get(key))
    data[20] ^= 0xFF
    objects.delete(key)
    objects.put(key, bytes(data))
    for damaged in serving(make_app(Settings(), objects)):
        near = damaged("/v1/cone?ra=0.814167&dec=16.145556&radius=5")
        assert near.headers["Stampede-Incomplete"] == "1 damaged object of the table positions"
        assert near.json()["incomplete"] == ["1 damaged object of the table positions"]
        away = damaged("/v1/cone?ra=200&dec=-80&radius=5")
        assert "Stampede-Incomplete" not in away.headers
