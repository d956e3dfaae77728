"""Headers of every response: what a browser may do with it, and which pages may read it."""

import csv
from io import StringIO

import pytest

from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from tests.support.read.read_service import (
    ZTF_ALERT,
    ZTF_OBJECT,
    fill,
    point,
    sample_cutouts,
    serving,
)
from tests.support.store.watched_objects import Watched

PATHS = {
    "/": 200,
    f"/objects/{ZTF_OBJECT}": 200,
    f"/alerts/{ZTF_ALERT}": 200,
    "/cone?ra=10&dec=-5": 200,
    f"/v1/alerts/{ZTF_ALERT}": 200,
    f"/v1/alerts/{ZTF_ALERT}/cutouts/science?format=png": 200,
    "/v1/alerts/5": 404,
    "/v1/alerts/x": 400,
    "/nothing": 404,
    "/health/liveness": 200,
    "/openapi.json": 200,
}
SAFE = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}


@pytest.mark.parametrize(("path", "status"), PATHS.items())
def test_every_answer_has_safe_headers(read, path, status):
    for accept in ("*/*", "text/html"):
        got = read(path, headers={"Accept": accept})
        assert got.status == status
        assert SAFE.items() <= {k.lower(): v for k, v in got.headers.items()}.items()
        policy = got.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        if got.headers["content-type"].startswith("text/html"):
            assert "unsafe-inline" not in policy
            assert b"<style" not in got.data
            assert b" style=" not in got.data
        assert b"<script>" not in got.data
        # Only a page with a script, which is a file, may run any.
        assert ("script-src 'self'" in policy) == (b"<script " in got.data)
        assert ("script-src" in policy) == path.startswith(("/objects/ZTF", "/cone", "/alerts/"))


def test_an_internal_error_has_them_too():
    def fail(number: int) -> None:
        raise RuntimeError("secret")

    for read in serving(make_app(Settings(), Watched(MemoryObjects(), fail))):
        got = read("/v1/alerts/1", retries=False)
        assert got.status == 500
        assert got.headers["x-content-type-options"] == "nosniff"
        assert got.headers["access-control-allow-origin"] == "*"


PREFLIGHT = {"Access-Control-Request-Method": "POST"}


def allowed(read, origin: str, method: str = "GET") -> str | None:
    headers = {"Origin": origin, **(PREFLIGHT if method == "OPTIONS" else {})}
    got = read("/v1/alerts/5", method, headers=headers)
    assert "access-control-allow-credentials" not in got.headers
    return got.headers.get("access-control-allow-origin")


def test_every_origin_may_read_by_default(read):
    for method in ("GET", "OPTIONS"):
        assert allowed(read, "https://anyone.test", method) == "*"
    got = read("/v1/cutouts", "OPTIONS", headers={"Origin": "https://a.test", **PREFLIGHT})
    assert got.status == 204
    assert "authorization" in got.headers["access-control-allow-headers"].lower()


def test_only_named_origins_may_read(store):
    settings = Settings(cors_origins="https://a.test, https://b.test:8443")
    for read in serving(make_app(settings, store)):
        for method in ("GET", "OPTIONS"):
            assert allowed(read, "https://b.test:8443", method) == "https://b.test:8443"
            for origin in ("https://b.test", "null", "https://a.test.evil", "http://a.test", "*"):
                assert allowed(read, origin, method) is None
        assert read("/v1/alerts/5").headers["vary"] == "Origin"
        path = f"/v1/objects/{ZTF_OBJECT}/lightcurve"
        got = read(path, headers={"Origin": "https://a.test"})
        assert {*got.headers.getlist("vary")} == {"Accept", "Origin"}


def test_no_origin_may_read(store):
    for read in serving(make_app(Settings(cors_origins=""), store)):
        assert allowed(read, "https://a.test") is None
        assert read("/v1/alerts/5", "OPTIONS", headers=PREFLIGHT).status == 405


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "＝1"]


def test_a_csv_cell_is_no_formula():
    """Text like this may be stored by an earlier version, or by another program."""
    objects = MemoryObjects()
    points = [
        point("A", "ztf", number, 59000.0 + number, band=text, flux=-5.0)
        for number, text in enumerate(FORMULAS, 1)
    ]
    fill(objects, sample_cutouts(), points, Coverage.of({("t", 0): [1]}))
    for read in serving(make_app(Settings(), objects)):
        one = read("/v1/objects/A/lightcurve?format=csv").data.decode()
        many = read("/v1/lightcurves?format=csv", "POST", b"A").data.decode()
        for text in (one, many):
            rows = list(csv.DictReader(StringIO(text, newline="")))
            assert [row["band"] for row in rows] == [f"'{text}" for text in FORMULAS]
            assert {row["flux"] for row in rows} == {"-5"}
            assert {row["object_id"] for row in rows} == {"A"}
