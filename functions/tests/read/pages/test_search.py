import re
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stampede.alerts.columns import DETECTION, MOVING
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.read.pages import search
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs import schema
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.prefix_lookup import keys_with_prefix
from stampede.store.tables.table import Table
from tests.support.read.html_page import html
from tests.support.read.read_service import (
    BOTH,
    LSST_ALERT,
    LSST_OBJECT,
    ZTF_OBJECT,
    point,
    sample_observations,
    sample_store,
    serving,
)
from tests.support.store.watched_objects import Watched

OBJECT_PAGE = f"/objects/{ZTF_OBJECT}"
LSST_PAGE = f"/objects/{LSST_OBJECT}"
FINDS = {
    ZTF_OBJECT: OBJECT_PAGE,
    ZTF_OBJECT.lower(): OBJECT_PAGE,
    ZTF_OBJECT.upper(): OBJECT_PAGE,
    f" {ZTF_OBJECT} ": OBJECT_PAGE,
    "ztf21AB": OBJECT_PAGE,  # the only one that begins so
    LSST_OBJECT: LSST_PAGE,
    LSST_OBJECT[:6]: LSST_PAGE,
    str(LSST_ALERT): f"/alerts/{LSST_ALERT}",
    "10.1 -5.2": "/cone?ra=10.1&dec=-5.2&radius=5",
    '0.814 16.145 10"': "/cone?ra=0.814&dec=16.145&radius=10%22",
    "0.814 16.145 2 arcmin": "/cone?ra=0.814&dec=16.145&radius=2arcmin",
    "00:03:15.4,+16:08:44 9": "/cone?ra=00%3A03%3A15.4&dec=%2B16%3A08%3A44&radius=9",
    "00 03 15.4 +16 08 44": "/cone?ra=00%3A03%3A15.4&dec=%2B16%3A08%3A44&radius=5",
    "J000315.4+160844": "/cone?ra=00%3A03%3A15.4&dec=%2B16%3A08%3A44&radius=5",
    "WISEA J000315.40-160844.1": "/cone?ra=00%3A03%3A15.40&dec=-16%3A08%3A44.1&radius=5",
    f"https://lasair-ztf.lsst.ac.uk/objects/{ZTF_OBJECT}/": OBJECT_PAGE,
    f"https://fink.example.org/?oid={ZTF_OBJECT}&x=1": OBJECT_PAGE,
    f"https://example.org/object/{LSST_OBJECT}": LSST_PAGE,
    f"LSST-AP-DO-{LSST_OBJECT}": LSST_PAGE,
    f"lsst-ap-ds-{LSST_ALERT}": f"/alerts/{LSST_ALERT}",
    "2011 UW158": "/moving/2011_UW158",
    "2011uw158": "/moving/2011_UW158",
    "K11UF8W": "/moving/2011_UW158",
    "00:03:15.4-16:08:44": "/cone?ra=00%3A03%3A15.4&dec=-16%3A08%3A44&radius=5",
}


@pytest.mark.parametrize(("typed", "location"), FINDS.items(), ids=FINDS)
def test_what_is_typed_leads_to_a_page(read, typed, location):
    got = read(f"/find?id={quote(typed)}")
    assert (got.status, got.headers["location"]) == (302, location)
    assert read(location).status == 200


@pytest.mark.parametrize("name", ["SN 2021rhu", "AT2021xyz", "sn1987A"])
def test_a_name_that_no_alert_has_is_told(read, name):
    got = read(f"/find?id={quote(name)}")
    assert got.status in (400, 404)
    assert f"{name} is a name of the Transient Name Server" in got.json()["detail"]


def test_an_alert_of_two_surveys_leads_to_a_choice(read):
    page, _ = html(read(f"/find?id={BOTH}"))
    links = [a["href"] for a in page.all("a") if a["href"].startswith("/alerts/")]
    assert links == [f"/alerts/{BOTH}?survey={survey}" for survey in ("lsst", "ztf")]


def test_a_number_may_mean_a_body_or_an_alert():
    objects = sample_store()
    rows = [row | {"designation": str(BOTH)} for row in sample_observations()[:1]]
    table = pa.Table.from_pylist(rows, MOVING)
    Table(objects, schema.MOVING).append(table, Coverage())
    for read in serving(make_app(Settings(), objects)):
        page, _ = html(read(f"/find?id={BOTH}"))
        links = [a["href"] for a in page.all("a") if a["href"].startswith(("/moving", "/alerts"))]
        assert links == [
            f"/moving/{BOTH}",
            *(f"/alerts/{BOTH}?survey={s}" for s in ("lsst", "ztf")),
        ]


def store_of(ids: list[list[str]]) -> MemoryObjects:
    """A store with a run of detections for each list of object ids."""
    objects = MemoryObjects()
    for number, names in enumerate(ids):
        rows = [point(name, "ztf", number + 1, 59000.0) for name in names]
        table = pa.Table.from_pylist(rows, DETECTION)
        Table(objects, DETECTIONS).append(table, Coverage.of({("ztf", 0): [number]}))
    return objects


def test_the_beginning_of_an_id_leads_to_a_list_that_says_if_there_are_more(monkeypatch):
    ids = [f"ZTF21aaaa{letter}" for letter in "abcdef"]
    for read in serving(make_app(Settings(), store_of([ids]))):
        page, text = html(read("/find?id=ztf21AAAA"))
        links = [a["href"] for a in page.all("a") if a["href"].startswith("/objects/")]
        assert links == [f"/objects/{name}" for name in ids]
        assert "more that are not listed" not in text
        monkeypatch.setattr(search, "MOST", 5)
        page, text = html(read("/find?id=ZTF"))
        assert len(re.findall('<li><a href="/objects/', text)) == 5
        assert "more that are not listed" in text


def test_what_is_not_found_says_how_it_was_understood_and_what_to_try(read):
    for typed, status, why in (
        ("ZTF99x", 404, "no object&#39;s id begins with it"),
        ("12345", 404, "no alert has it"),
        ("C/2017 K2 (PANSTARRS)", 404, "alert of the body C/2017 K2 is stored"),
        ("2012 AB1", 404, "alert of the body 2012 AB1 is stored"),
        ("(nothing)", 400, "neither an id nor a position"),
        ("", 400, "Try an id"),
        ("10 +95", 302, ""),
    ):
        got = read(f"/find?id={quote(typed)}", headers={"Accept": "text/html"})
        assert got.status == status, typed
        if why:
            text = html(got)[1]
            assert why in text
            assert "00:03:15.4 +16:08:44" in text
    got = read("/cone?ra=10&dec=%2B95&radius=5", headers={"Accept": "text/html"})
    assert "declination from -90 to 90" in html(got)[1]


names = st.text("ab1", min_size=1, max_size=4)


@settings(max_examples=2 * settings.default.max_examples // 5)
@given(st.lists(st.lists(names, min_size=1, max_size=6), max_size=4), names, st.integers(1, 5))
def test_a_prefix_finds_the_first_keys_of_all_runs(ids, prefix, most):
    objects = Watched(store_of(ids))
    table = Table(objects, DETECTIONS)
    table.refresh()
    objects.calls.clear()
    every = sorted({name for some in ids for name in some if name.startswith(prefix)})
    assert keys_with_prefix(table, prefix, most) == every[:most]
    assert objects.count("get") <= 2 * len(ids)
