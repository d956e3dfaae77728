"""The page of a position: what was typed, a map, and a form to search on."""

import re
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.alerts.columns import DETECTION
from stampede.alerts.positions import positions_of
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.read.pages import cone
from stampede.read.plots.sky_plot import RADIUS, SIZE, SkyObject, position_angle, sky_plot_svg
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import DETECTIONS, POSITIONS
from stampede.store.tables.table import Table
from tests.read.api.test_cone import CENTRE, sample, store
from tests.support.read.html_page import html
from tests.support.read.read_service import (
    BOTH,
    LSST_ALERT,
    ZTF_ALERT,
    point,
    sample_points,
    sample_store,
    serving,
)


def test_the_page_shows_what_was_typed_beside_what_it_means(read):
    page, text = html(read("/cone?ra=00:40:00.0&dec=-5d0m0s&radius=2arcmin"))
    assert "<h1>00:40:00.0 -5d0m0s</h1>" in text
    values = {one["name"]: one.get("value") for one in page.all("input")}
    assert values["ra"] == "00:40:00.0"
    assert values["dec"] == "-5d0m0s"
    assert values["radius"] == "2arcmin"
    copied = [tag["data-copy"] for tag in page.all("span") if "data-copy" in tag]
    assert copied == ["10.000000 -5.000000", "00:40:00.00 -05:00:00.0"]
    assert "120″" in text


def test_what_was_typed_is_escaped(read):
    _, text = html(read("/cone?ra=10&dec=-5&radius=5%22"))
    assert 'value="5&#34;"' in text


def test_the_map_leads_to_each_object():
    query = f"ra={CENTRE.ra}&dec={CENTRE.dec}&radius=5"
    for read in serving(make_app(Settings(), store(sample()))):
        _, text = html(read(f"/cone?{query}"))
    svg = ElementTree.fromstring(re.search("<svg class=.skyplot.*?</svg>", text)[0])
    links = [link.get("href") for link in svg.iter("a")]
    assert links == ["/objects/ZTF21near", "/objects/ZTF21next"]
    assert "2 objects within 5″" in text
    assert text.count('href="/objects/ZTF21near"') == 2  # in the table too


def test_the_latest_alerts_of_the_nearest_objects_are_pictured(monkeypatch):
    objects, more = (
        sample_store(),
        [
            point("NEXT", "ztf", 8, 59000.0, ra=10.001),  # whose alert is not stored
            point("77", "ztf", BOTH, 59001.0, ra=10.002),  # an alert of this id is another object's
            point("ZTF00both", "ztf", BOTH, 59000.0, ra=10.003),
        ],
    )
    rows = pa.Table.from_pylist([*sample_points(), *more], DETECTION)
    coverage = Coverage.of({("ztf", 0): [9]})
    Table(objects, POSITIONS).append(positions_of(rows), coverage)
    Table(objects, DETECTIONS).append(rows, coverage)
    for read in serving(make_app(Settings(), objects)):
        page, text = html(read("/cone?ra=10&dec=-5&radius=60"))
        assert "one of each object" in text
        pictured = [tag["id"] for _, tag in page.tags if tag.get("class") == "alert"]
        assert sorted(pictured[:2]) == sorted([f"alert-{ZTF_ALERT}", f"alert-{LSST_ALERT}"])
        assert pictured[2:] == [f"alert-{BOTH}"]
        images = [tag["src"] for tag in page.all("img") if tag["loading"] == "lazy"]
        assert f"/v1/alerts/{BOTH}/thumbnail?survey=ztf" in images
        assert {read(path).status for path in images} == {200}
        monkeypatch.setattr(cone, "PICTURED", 1)
        page, text = html(read("/cone?ra=10&dec=-5&radius=60"))
        assert "one of each of the nearest 1 objects" in text
        assert text.count('class="alert"') == 1


def test_a_place_without_objects_has_a_form_and_links_to_others(read):
    page, text = html(read("/cone?ra=200&dec=60&radius=5"))
    assert "No object within 5″" in text
    assert "skyplot" not in text
    assert '<a href="/cone?ra=200&amp;dec=60&amp;radius=60">60″</a>' in text
    assert "simbad" in text
    assert len(page.all("form")) == 2


def test_north_is_up_and_east_is_left():
    middle = SIZE / 2
    for ra, dec, x, y in ((10, 1, 0, -1), (11, 0, -1, 0), (10, -1, 0, 1), (9, 0, 1, 0)):
        some = [SkyObject("a", ra, dec, 3600.0, "/objects/a")]
        svg = ElementTree.fromstring(sky_plot_svg(10, 0, 7200, some))
        (mark,) = svg.findall("a/circle")
        assert float(mark.get("cx")) == pytest.approx(middle + x * RADIUS / 2, abs=0.1)
        assert float(mark.get("cy")) == pytest.approx(middle + y * RADIUS / 2, abs=0.1)


@given(st.floats(0, 360), st.floats(-90, 90), st.floats(0, 360), st.floats(-90, 90))
def test_every_object_lies_within_the_map(ra, dec, to_ra, to_dec):
    assert np.isfinite(position_angle(ra, dec, to_ra, to_dec))
    svg = sky_plot_svg(ra, dec, 5.0, [SkyObject("<a", to_ra, to_dec, 5.001, "/objects/%3Ca")])
    (mark,) = ElementTree.fromstring(svg).findall("a/circle")
    x, y = (float(mark.get(at)) - SIZE / 2 for at in ("cx", "cy"))
    assert np.hypot(x, y) <= RADIUS + 0.1
