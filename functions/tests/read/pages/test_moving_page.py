"""The page of a body of the solar system."""

import re
from urllib.parse import quote

import pyarrow as pa
import pytest

from stampede.alerts.columns import MOVING
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs import schema
from stampede.store.tables.table import Table
from tests.support.alerts import made_alerts
from tests.support.read.html_page import html
from tests.support.read.read_service import BODY, ZTF_ALERT, sample_observations, serving

PAGE = "/moving/2011_UW158"


def test_the_page_shows_curve_phase_path_cutouts_and_observations(read) -> None:
    page, text = html(read(f"/moving/{quote(BODY)}"))
    assert f"<h1>{BODY}" in text
    plots = [svg["aria-label"] for svg in page.all("svg") if "aria-label" in svg]
    assert plots == [
        "Difference flux (µJy) of 3 points over time",
        "Reduced magnitude (AB) of 2 points over the phase angle",
        "3 places within 0.315°, north up, east left",
    ]
    images = [img["src"] for img in page.all("img")]
    assert any(f"/v1/alerts/{ZTF_ALERT}/" in src for src in images)
    assert "12.5 to 13°" in text
    links = {a["href"] for a in page.all("a")}
    assert {f"/alerts/{ZTF_ALERT}?survey=ztf", "/alerts/11?survey=lsst"} <= links
    assert f"/v1{PAGE}?format=csv" in links
    ids = [tag["id"] for _, tag in page.tags if "id" in tag]
    assert len(ids) == len(set(ids))
    assert read(f"/v1{PAGE}?format=csv").status == 200


def test_magnitudes_are_reduced_to_one_au(read) -> None:
    """31.4 - 2.5 log10(9000) - 5 log10(2.7 * 1.9) = 17.96."""
    _, text = html(read(f"{PAGE}?axis=mag"))
    phase = text[text.index('id="phase"') :]
    assert re.search(r"r 17\.9[56]\d* ± 0\.0", phase)
    assert "show flux" in text


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("/moving/2012_AB1", 404, "No alert of the body &#39;2012 AB1&#39; is stored"),
        (f"{PAGE}?axis=x", 400, "must be one of"),
        (f"{PAGE}?page=0", 400, "must be a number"),
    ],
)
def test_errors_are_pages(read, path: str, status: int, why: str) -> None:
    got = read(path, headers={"Accept": "text/html"})
    assert got.status == status
    assert why in html(got)[1]


def test_many_observations_have_pages_and_no_cutouts_are_told() -> None:
    objects = MemoryObjects()
    first = sample_observations()[0]
    rows = [first | {"alert_id": 100 + n, "mjd": 59400.0 + n, "ra": None} for n in range(120)]
    Table(objects, schema.MOVING).append(pa.Table.from_pylist(rows, MOVING), Coverage())
    for read in serving(make_app(Settings(), objects)):
        page, text = html(read(f"{PAGE}?points=3"))
        assert "No cutouts of these alerts are stored." in text
        assert "page 3 of 3" in text
        assert len(re.findall('<td class="text"><a href="/alerts/', text)) == 20
        assert 'id="path"' not in text
        assert f"{PAGE}?points=2#points" in {a["href"] for a in page.all("a")}


@pytest.mark.skipif(not made_alerts.REAL.exists(), reason="no real alerts are here")
def test_a_real_asteroid_is_found_from_its_object(real) -> None:
    page, _ = html(real("/objects/ZTF18acsbtfy"))
    assert "/moving/45685" in {a["href"] for a in page.all("a")}
    _, text = html(real("/moving/45685"))
    assert "ZTF" in text
    assert real("/find?id=45685").headers["location"] == "/moving/45685"
