"""While the store cannot be listed, answers tell how old their view is; in the end they are 503."""

import time
from collections.abc import Iterator

import pytest

from stampede.config.settings import Settings
from stampede.errors import StoreDown
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import ObjectInfo
from stampede.store.offsets.coverage import Coverage
from tests.support.read.read_service import (
    ZTF_ALERT,
    ZTF_OBJECT,
    Reader,
    fill,
    sample_cutouts,
    sample_points,
    serving,
)
from tests.support.store.watched_objects import Forwarding

CUTOUT = f"/v1/alerts/{ZTF_ALERT}/cutouts/science"
LIGHT_CURVE = f"/v1/objects/{ZTF_OBJECT}/lightcurve"


class Unlistable(Forwarding):
    """A store whose listings fail while `broken` is set; objects can still be read."""

    broken = False
    listings = 0

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        self.listings += 1
        if self.broken:
            raise StoreDown("listing failed")
        return super().list(prefix, after)


@pytest.fixture
def objects() -> Unlistable:
    objects = Unlistable(MemoryObjects())
    fill(objects, sample_cutouts(), sample_points(), Coverage.of({("ztf", 0): [1]}))
    return objects


def reader(objects: Unlistable, refresh: float, stale: float) -> Iterator[Reader]:
    settings = Settings(refresh_seconds=refresh, stale_seconds=stale)
    yield from serving(make_app(settings, objects))


def post(read: Reader):
    return read("/v1/lightcurves?format=csv", "POST", ZTF_OBJECT.encode())


def break_listings(objects: Unlistable) -> None:
    """Let listings fail from now on, and the view of before grow old."""
    objects.broken = True
    time.sleep(0.25)


def test_an_old_view_serves_and_tells_its_age(objects: Unlistable) -> None:
    for read in reader(objects, 0.1, 300):
        for path in (CUTOUT, LIGHT_CURVE):
            fresh = read(path)
            assert fresh.status == 200
            assert "stampede-view-age" not in fresh.headers
        assert post(read).status == 200
        break_listings(objects)
        for path in (CUTOUT, LIGHT_CURVE):
            old = read(path)
            assert old.status == 200, path
            assert 0 < int(old.headers["stampede-view-age"]) < 300
            assert old.headers["cache-control"] == "no-store"
        assert "stampede-view-age" in post(read).headers
        objects.broken = False
        time.sleep(0.15)
        assert "stampede-view-age" not in read(CUTOUT).headers


def test_an_old_view_never_says_that_an_alert_is_unknown(objects: Unlistable) -> None:
    for read in reader(objects, 0.1, 300):
        assert read("/v1/alerts/5").status == 404
        assert read(CUTOUT).status == 200
        break_listings(objects)
        for path in ("/v1/alerts/5", "/v1/objects/ZTF00unknown/lightcurve"):
            got = read(path)
            assert got.status == 503
            assert got.json()["type"] == "urn:stampede:problem:store-down"


def test_a_view_that_is_too_old_is_not_served(objects: Unlistable) -> None:
    for read in reader(objects, 0.1, 0):
        assert read(CUTOUT).status == 200
        break_listings(objects)
        got = read(CUTOUT)
        assert got.status == 503
        assert int(got.headers["retry-after"]) > 0
        objects.broken = False
        time.sleep(0.15)
        assert read(CUTOUT).status == 200


def test_a_store_that_cannot_be_listed_is_not_asked_by_every_request(objects: Unlistable) -> None:
    for read in reader(objects, 0.2, 300):
        assert read(CUTOUT).status == 200
        break_listings(objects)
        asked = objects.listings
        assert all(read(CUTOUT).status == 200 for _ in range(10))
        assert objects.listings <= asked + 5


@pytest.mark.parametrize("path", [CUTOUT, LIGHT_CURVE])
def test_without_any_view_the_answer_is_503(objects: Unlistable, path: str) -> None:
    objects.broken = True
    for read in reader(objects, 2, 300):
        assert read(path).status == 503
