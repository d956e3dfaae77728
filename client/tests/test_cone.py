"""Objects around a position, on a real server."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from astropy import units
from astropy.coordinates import SkyCoord
from astropy.time import Time

import stampede_client
from stampede.alerts.columns import DETECTION
from stampede.alerts.positions import positions_of
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import DETECTIONS, POSITIONS
from stampede.store.tables.table import Table
from stampede_client import queries
from tests.support.read.read_service import point, serving

RA, DEC = 0.814167, 16.145556  # 00:03:15.4 +16:08:44


@pytest.fixture(scope="module")
def sky() -> Iterator[stampede_client.Client]:
    objects = MemoryObjects()
    points = [
        point("ZTF21next", "ztf", 2, 59005.0, ra=RA, dec=DEC + 3 / 3600),
        point("ZTF21near", "ztf", 1, 59000.0, ra=RA, dec=DEC + 1 / 3600),
        point("ZTF21far", "ztf", 3, 59005.0, ra=RA, dec=DEC + 1),
    ]
    table = Table(objects, POSITIONS)
    rows = pa.Table.from_pylist(points, DETECTION)
    table.append(positions_of(rows), Coverage.of({("t", 0): [1]}))
    table.close()
    curves = Table(objects, DETECTIONS)  # the points of the farthest object are to come
    curves.append(rows.filter(pc.less(rows["source_id"], 3)), Coverage())
    curves.close()
    for read in serving(make_app(Settings(), objects)):
        with stampede_client.connect(read.url) as st:
            yield st


@pytest.mark.parametrize(
    "position",
    [
        *("00:03:15.4 +16:08:44", "0h3m15.4s 16d8m44s", f"{RA} {DEC}"),
        *(SkyCoord(RA, DEC, unit="deg"), (RA, DEC), (RA * units.deg, DEC * units.deg)),
    ],
)
@pytest.mark.parametrize("radius", [5, 5 * units.arcsec, (5 / 3600) * units.deg])
def test_the_nearest_object_comes_first(sky, position, radius) -> None:
    found = sky.cone(position, radius)
    assert list(found["object_id"]) == ["ZTF21near", "ZTF21next"]
    assert found["distance"].unit == units.arcsec
    assert found["ra"].unit == units.deg
    assert found["distance"][0] == pytest.approx(1, abs=0.3)
    assert list(found["detections"]) == [1, 1]


def test_an_object_that_is_not_counted_yet_is_masked(sky) -> None:
    found = sky.cone(RA, DEC, 2 * units.deg)
    assert list(found["object_id"]) == ["ZTF21near", "ZTF21next", "ZTF21far"]
    for name in ("detections", "first_mjd", "last_mjd"):
        assert list(found[name].mask) == [False, False, True]
    assert list(found["first_mjd"][:2].mjd) == [59000.0, 59005.0]


def test_positions_may_be_numbers(sky) -> None:
    expected = list(sky.cone("00:03:15.4 +16:08:44", 5)["object_id"])
    for found in (
        sky.cone(RA, DEC, 5),
        sky.cone(RA, DEC, radius=5 * units.arcsec),
        sky.cone((RA, DEC), radius=5),
        sky.cone(np.float64(RA), np.float32(DEC), radius=5.5),
    ):
        assert list(found["object_id"]) == expected
    assert isinstance(found["first_mjd"], Time)
    assert found["first_mjd"].scale == "tai"


def test_many_positions_are_matched(sky, monkeypatch) -> None:
    monkeypatch.setattr(queries, "MOST_POSITIONS", 2)
    ra, dec = np.full(5, RA), np.array([-80.0, DEC, DEC + 1, 70.0, DEC + 3 / 3600])
    wanted = [
        (1, "ZTF21near"),
        (1, "ZTF21next"),
        (2, "ZTF21far"),
        (4, "ZTF21next"),
        (4, "ZTF21near"),
    ]
    for found in (
        sky.cone(SkyCoord(ra, dec, unit="deg"), radius=5),
        sky.cone(ra, dec, radius=5),
        sky.cone((list(ra), list(dec)), 5),
    ):
        assert [*zip(found["position"], found["object_id"], strict=True)] == wanted
        assert found["distance"].unit == units.arcsec


def test_nothing_there_is_an_empty_table(sky) -> None:
    found = sky.cone("12:00:00 -45:00:00", 5)
    assert len(found) == 0
    assert "object_id" in found.colnames


@pytest.mark.parametrize(
    ("position", "radius", "fault"),
    [
        ("somewhere", 5, "is no position"),
        ("1 95", 5, "is no position"),
        ("1 1", -1, "is no radius"),
        ("1 1", 5 * units.m, "is no radius"),
        ("1 1", 181 * units.deg, "is no radius"),
        ((1, 95), 5, "is no position"),
        ((1, 2, 3), 5, "is no position"),
        (("1", "2"), 5, "text stands alone"),
        (([], []), 5, "give one or a list of them"),
        ((1, 1), None, "a radius is missing"),
        (1, 1, "a radius is missing"),
    ],
)
def test_what_is_no_cone_is_never_sent(position, radius, fault: str) -> None:
    given = [position] if radius is None else [position, radius]
    with pytest.raises(stampede_client.BadInput, match=fault):
        stampede_client.connect("http://127.0.0.1:9").cone(*given)
