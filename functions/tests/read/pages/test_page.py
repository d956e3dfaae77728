import gzip
import re
import shutil
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.alerts import surveys
from stampede.alerts.columns import DETECTION, KINDS
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.read.pages import page as pages
from stampede.read.pages.object import Part, render
from stampede.read.pages.object_choices import Choices
from stampede.read.plots import light_curve as plot
from stampede.read.plots import marks
from stampede.read.plots.light_curve import Axis, Flux, Quantity, light_curve_svg
from stampede.read.plots.numbers import measured
from stampede.read.plots.ticks import date_of, date_ticks, nice_ticks
from stampede.read.plots.value_range import Fit, outliers
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from tests.support.alerts.fits_files import ztf_source
from tests.support.read.html_page import Page, html
from tests.support.read.read_service import (
    LSST_ALERT,
    LSST_OBJECT,
    ZTF_ALERT,
    ZTF_OBJECT,
    cutout,
    fill,
    point,
    sample_points,
    serving,
)

CHROMIUM = shutil.which("chromium")
OBJECT_PAGE = f"/objects/{ZTF_OBJECT}"
XSS = "%3Cscript%3Ealert(1)%3Cimg%20src=x%20onerror=alert(1)%3E"


def test_an_object_page_shows_plot_cutouts_table_and_downloads(read):
    page, text = html(read(OBJECT_PAGE))
    assert ZTF_OBJECT in text
    images = [image["src"] for image in page.all("img")]
    assert len(images) == 3
    for source in images:
        assert read(source).headers["content-type"] == "image/png"
    links = [a["href"] for a in page.all("a") if a["href"].startswith("/")]
    assert len(links) > 10
    for link in links:
        assert read(link).status == 200, link
    assert len(page.all("circle")) >= 2
    assert str(ZTF_ALERT) in text
    script, _ = page.all("script")
    got = read(script["src"])
    assert got.headers["content-type"] == "text/javascript; charset=utf-8"
    assert "immutable" in got.headers["cache-control"]
    packed = read(script["src"], headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.data) == got.data
    assert read("/static/object.0000.js").status == 404


def test_a_page_names_the_cutouts_that_were_not_sent(read):
    page, text = html(read(f"/objects/{LSST_OBJECT}"))
    assert len(page.all("img")) == 2
    assert "not sent" in text


def test_the_requested_alert_is_marked(read):
    page, _ = html(read(f"{OBJECT_PAGE}?alert={ZTF_ALERT}"))
    (marked,) = (div for div in page.all("div") if "chosen" in div.get("class", ""))
    assert marked["id"] == f"alert-{ZTF_ALERT}"


def test_magnitudes_can_be_plotted(read):
    assert "Difference magnitude (AB)" in html(read(f"{OBJECT_PAGE}?axis=mag"))[1]


def rendered(rows: list[dict], choices: Choices | None = None) -> str:
    """The page of an object with these points."""
    return render("a", table(rows), choices or Choices(), set(), [], Part(1, 1, 0))


def test_the_total_flux_can_be_plotted(read):
    assert "show total flux" not in html(read(OBJECT_PAGE))[1]  # nobody sent it
    _, text = html(read(f"{OBJECT_PAGE}?flux=total&axis=mag"))
    assert "No point can be plotted" in text
    assert "points without a total magnitude." in text

    rows = [point("a", "lsst", n, 6e4 + n, total_flux=2e4, total_flux_err=1e3) for n in (1, 2)]
    rows.append(point("a", "lsst", 3, 6e4))
    assert 'flux=total">show total flux</a>' in rendered(rows)
    total = rendered(rows, Choices(Axis.MAG, Flux.TOTAL))
    assert "Total magnitude (AB) of 2 points over time" in total
    assert "r 20.647 ± 0.054 mag" in total
    assert 'href="/objects/a?axis=mag">show difference flux</a>' in total
    assert "1 point without a total magnitude." in total


SLASHES = {
    f"{OBJECT_PAGE}/": OBJECT_PAGE,
    f"{OBJECT_PAGE}//?axis=mag&bands=g": f"{OBJECT_PAGE}?axis=mag&bands=g",
    f"/v1/objects/{ZTF_OBJECT}/lightcurve/": f"/v1/objects/{ZTF_OBJECT}/lightcurve",
}


@pytest.mark.parametrize(("path", "location"), SLASHES.items())
def test_a_slash_too_many_leads_to_the_page(read, path, location):
    got = read(path)
    assert (got.status, got.headers["location"]) == (308, location)
    assert read(location).status == 200


@pytest.mark.parametrize("path", ["//example.org/", "/\\example.org/", "//"])
def test_a_slash_too_many_leads_to_no_other_host(read, path):
    assert read(path).status in (400, 404)


def test_a_cone_without_a_radius_has_the_usual_one(read):
    assert "within 5″" in html(read("/cone?ra=10&dec=-5"))[1]
    got = read("/cone?ra=400&dec=1", headers={"Accept": "text/html"})
    assert (got.status, b"Ra must be a right ascension" in got.data) == (400, True)
    assert read("/v1/cone?ra=10&dec=-5").status == 400


def test_search_engines_are_asked_to_leave_alerts_alone(read):
    assert "Disallow: /alerts/" in read("/robots.txt").data.decode()


def test_a_person_is_told_what_to_do_about_an_unknown_page(read):
    got = read("/nothing", headers={"Accept": "text/html"})
    assert "There is no page /nothing: look for an id" in got.data.decode()


@pytest.mark.parametrize(
    ("ra", "dec", "text"),
    [
        (0.814167, 16.145556, "00:03:15.40 +16:08:44.0"),
        (359.9999999, -0.00001, "00:00:00.00 -00:00:00.0"),
        (180.0, -89.99999, "12:00:00.00 -90:00:00.0"),
        (15.0, 59.9999999, "01:00:00.00 +60:00:00.0"),
    ],
)
def test_positions_in_hours_and_degrees(ra, dec, text):
    assert pages.sexagesimal(ra, dec) == text


PROBLEMS = {
    f"/objects/{XSS}": 400,
    f"/alerts/{XSS}": 400,
    f"/find?id={XSS}": 400,
    "/find": 400,
    "/find?id=12345": 404,
    "/objects/ZTF99nothing": 404,
    f"{OBJECT_PAGE}?axis={XSS}": 400,
    f"{OBJECT_PAGE}?alert={XSS}": 400,
    f"{OBJECT_PAGE}?bands=g,{XSS}": 400,
    f"{OBJECT_PAGE}?kinds=thing": 400,
    f"{OBJECT_PAGE}?page=1.5": 400,
    f"{OBJECT_PAGE}?points=0": 400,
    f"{OBJECT_PAGE}?period=0": 400,
    f"{OBJECT_PAGE}?period=nan": 400,
    f"{OBJECT_PAGE}?epoch=59000": 400,
    f"/{XSS}": 404,
}


@pytest.mark.parametrize(("path", "status"), PROBLEMS.items(), ids=PROBLEMS)
def test_a_browser_gets_a_page_about_the_problem_without_scripts(read, path, status):
    got = read(path, headers={"Accept": "text/html,*/*;q=0.8"})
    assert got.status == status
    page, text = html(got)
    assert page.all("script") == []
    assert page.all("img") == []
    assert "<script" not in text
    assert read(path).headers["content-type"] == "application/problem+json"


def test_the_page_of_an_alert_shows_each_cutout_and_its_hdus(read):
    page, text = html(read(f"/alerts/{LSST_ALERT}?stretch=zscale&limits=science"))
    pictures = [image["src"] for image in page.all("img")]
    assert len(pictures) == 2
    assert all("stretch=zscale" in src and "limits=science" in src for src in pictures)
    assert "not sent" in text
    assert "PSFIMAGE</a> 5 x 5" in text
    assert f"/objects/{LSST_OBJECT}?alert={LSST_ALERT}" in text
    links = [a["href"] for a in page.all("a") if a["href"].startswith("/")]
    for link in [*pictures, *links]:
        assert read(link).status == 200, link


def test_the_page_of_an_alert_says_where_north_is_and_lists_its_fields(read):
    page, text = html(read(f"/alerts/{ZTF_ALERT}"))
    assert "north is up, east is left" in text
    # Of 63 pixels of 1.012 arcsec, 5 arcsec are 7.84 percent, drawn from 5 on.
    assert text.count("M5 94H12.84") == len(page.all("img")) == 3
    assert "<dt>candid</dt>" in text
    _, without_matrix = html(read(f"/alerts/{LSST_ALERT}"))
    assert "north is up" not in without_matrix
    assert without_matrix.count("as the survey sent it: where north is") == 2


def test_the_pages_of_alerts_lead_to_the_alerts_before_and_after():
    objects = MemoryObjects()
    cutouts = [
        cutout(number, "ztf", kind, "ZTF1", 59000.0 + number, ztf_source(1))
        for number in (1, 2, 40)
        for kind in KINDS
    ]
    points = [point("ZTF1", "ztf", number, 59000.0 + number) for number in range(1, 41)]
    fill(objects, cutouts, points, Coverage.of({("ztf", 0): [1]}))
    for read in serving(make_app(Settings(), objects)):
        neighbours = {
            number: [
                (a["rel"], a["href"])
                for a in html(read(f"/alerts/{number}"))[0].all("a")
                if "rel" in a
            ]
            for number in (1, 2, 40)
        }
    before, after = ("prev", "/alerts/{}?survey=ztf"), ("next", "/alerts/{}?survey=ztf")
    assert neighbours == {
        1: [(after[0], after[1].format(2))],
        2: [(before[0], before[1].format(1)), (after[0], after[1].format(40))],
        40: [(before[0], before[1].format(2))],  # of those between no alert is stored
    }


def next_part(page: Page, anchor: str) -> str:
    """The address of the next part of the alerts or points; empty after the last."""
    links = (a["href"] for a in page.all("a") if a.get("rel") == "next" and anchor in a["href"])
    return next(links, "").partition("#")[0]


def test_every_alert_and_point_of_an_object_is_reached_page_by_page():
    objects = MemoryObjects()
    numbers = range(1, 31)
    cutouts = [
        cutout(number, "ztf", "science", "ZTF1", 59000.0 + number, ztf_source(1))
        for number in numbers
    ]
    points = [point("ZTF1", "ztf", number, 59000.0 + number) for number in range(1, 61)]
    points += [point("ZTF1", "ztf", 100 + n, 58900.0 + n, forced=True, band="g") for n in range(9)]
    fill(objects, cutouts, points, Coverage.of({("ztf", 0): [1]}))
    for read in serving(make_app(Settings(), objects)):
        alerts, rows, path = [], 0, "/objects/ZTF1?bands=r"
        while path:
            page, text = html(read(path))
            alerts += [div["id"] for div in page.all("div") if "id" in div]
            path = next_part(page, "#alerts")
        assert alerts == [f"alert-{number}" for number in reversed(numbers)]
        assert text.count('aria-label="alert, ') == len(numbers)  # of the 60 in the plot
        path = "/objects/ZTF1?kinds=detection&kinds=forced"
        while path:
            page, text = html(read(path))
            rows += len(page.all("tr")) - 1
            path = next_part(page, "#points")
        assert rows == 69
        marked, text = html(read("/objects/ZTF1?alert=2"))
        assert "page 3 of 3" in text
        assert [div["id"] for div in marked.all("div") if "chosen" in div.get("class", "")] == [
            "alert-2"
        ]
        few, text = html(read("/objects/ZTF1?bands=g&axis=mag"))
        assert len(few.all("tr")) == 10
        assert "of 9 points over time" in text
        assert "of what is chosen" in html(read("/objects/ZTF1?bands=r&kinds=limit"))[1]


def test_the_front_page_shows_the_latest_alerts(read):
    page, text = html(read("/"))
    pictures = [image["src"] for image in page.all("img")]
    first = re.search(r"/v1/alerts/(\d+)/", pictures[0])
    assert first
    assert int(first[1]) == LSST_ALERT  # of the latest night
    for link in pictures:
        assert read(link).status in (200, 422), link  # one is damaged
    alerts = {a["href"] for a in page.all("a") if a["href"].startswith("/alerts/")}
    assert len(alerts) >= 4
    for link in alerts:
        assert read(link).status == 200, link
    assert f'href="/objects/{ZTF_OBJECT}"' in text
    assert '<p class="verdict bad">2 alerts missing in cutouts' in text


def test_the_latest_alerts_as_json(read):
    found = read("/v1/alerts?limit=2").json()["alerts"]
    assert found[0]["alert_id"] == str(LSST_ALERT)
    assert len(found) == 2
    for alert in read("/v1/alerts").json()["alerts"]:
        assert read(f"{alert['href']}?survey={alert['survey']}").json()["mjd"] == alert["mjd"]
    assert read("/v1/alerts?limit=101").status == 400


def test_bands_of_a_survey_have_shapes_of_their_own():
    for survey in surveys.surveys():
        drawn = {marks.mark("detection", band, 0, 0, 4) for band in survey.BANDS}
        assert len(drawn) == len(survey.BANDS)
    assert marks.mark("detection", "r", 0, 0, 4) == marks.mark("detection", "none", 0, 0, 4)


def test_one_unit_for_plot_and_table(read):
    names = {"flux": ("flux (µJy)", "flux (µJy)"), "mag": ("AB mag", "magnitude (AB)")}
    for axis, (column, name) in names.items():
        _, text = html(read(f"{OBJECT_PAGE}?axis={axis}"))
        assert re.search(f'<th><abbr title="[^"]+">{re.escape(column)}</abbr></th>', text)
        assert f">Difference {name}</text>" in text


def test_values_from_a_survey_are_escaped():
    evil = '"><script>alert(1)</script>%s'
    rows = [point(evil, evil, 1, 59000.0, band=evil)]
    detections = pa.Table.from_pylist(rows, DETECTION)
    text = render(evil, detections, Choices(), {(1, evil)}, [], Part(1, 1, 0))
    sources = [script["src"] for script in Page(text).all("script")]
    assert [source.split(".")[0] for source in sources] == ["/static/object", "/static/copy"]
    assert "<title>&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;%s 1.23 ±" in text


def table(rows: list[dict]) -> pa.Table:
    return pa.Table.from_pylist(rows, DETECTION)


def test_a_plot_is_xml_with_a_mark_for_every_point():
    rows = [row for row in sample_points() if row["survey"] == "ztf"]
    root = ElementTree.fromstring(light_curve_svg(table(rows)))
    titles = [title.text for title in root.iter("title")]
    assert "r 1.23 ± 0.10 µJy, MJD 59400.0000" in titles
    assert "g limit 0.100 µJy (5 sigma), MJD 59398.0000" in titles
    assert len(titles) == 4  # the forced point is NaN


def test_a_brighter_point_is_higher_on_both_axes():
    rows = [point("a", "ztf", i, 59000.0 + i, flux=f) for i, f in enumerate((1e3, 1e4))]
    for axis in Axis:
        root = ElementTree.fromstring(light_curve_svg(table(rows), Quantity(axis)))
        heights = [float(mark.get("cy")) for mark in root.iter("circle")]
        assert heights[1] < heights[0]


def test_a_folded_plot_shows_each_point_in_two_cycles():
    rows = [point("a", "ztf", i, 59000.0 + 0.25 * i, flux=1e3 * (i % 2)) for i in range(8)]
    svg = light_curve_svg(table(rows), fold=plot.Fold(0.5, 58999.75))
    places = {round(float(mark.get("cx"))) for mark in ElementTree.fromstring(svg).iter("circle")}
    width = plot.WIDTH - plot.LEFT - plot.RIGHT
    # Half of the points are at phase 0.5 and the others at 0 of the frame's two cycles.
    assert places == {round(plot.LEFT + width * part / 4) for part in range(4)}
    assert "Phase of 0.5 days, 0 at MJD 58999.75" in svg


def test_the_form_folds_by_the_first_point_and_without_a_period_does_nothing(read):
    _, text = html(read(f"{OBJECT_PAGE}?bands=g&bands=r&period=1.5"))
    assert "Phase of 1.5 days, 0 at MJD 59398" in text
    assert 'name="epoch"' in text
    assert "MJD (TAI)</text>" in html(read(f"{OBJECT_PAGE}?bands=g&period="))[1]


def test_every_point_is_drawn_or_counted_in_magnitudes():
    """Those that are too faint as limits; those without an error are counted."""
    rows = [
        point("a", "ztf", 0, 59000.0, flux=-1e3),
        point("a", "ztf", 1, 59000.0, flux=-1e2),
        point("a", "ztf", 2, 59001.0, flux=200.0, forced=True),
        point("a", "ztf", 3, 59002.0, flux=5e3),
        point("a", "ztf", 4, 59003.0, flux=None),
        point("a", "ztf", 5, 59004.0, limit=True, flux=None),
    ]
    svg = light_curve_svg(table(rows), Quantity(Axis.MAG))
    assert "Difference magnitude (AB) of 1 point and 3 limits over time" in svg
    assert svg.count("<title>") == 4
    assert svg.count("<title>r limit 24.65 mag (5 sigma), MJD") == 3
    text = rendered(rows, Choices(axis=Axis.MAG))
    assert "2 points below 3σ: the 5σ limit is drawn." in text
    assert "1 point of negative difference flux, which has no magnitude." in text
    assert "1 point without a difference magnitude." in text
    assert 'id="show-limit"' in text
    assert text.count("<td>&gt; ") == 3
    assert "limit" not in light_curve_svg(table(rows[:5]), Quantity(Axis.FLUX))


flux = st.one_of(st.none(), st.floats(width=32))


@given(
    st.lists(st.tuples(st.floats(50000, 70000), flux, flux, st.booleans()), min_size=1, max_size=5),
    st.builds(Quantity, st.sampled_from(Axis), st.sampled_from(Flux)),
)
def test_any_light_curve_can_be_plotted(rows, quantity):
    points = [
        point("a", "lsst", i, mjd, flux=f, flux_err=e, limit=limit)
        for i, (mjd, f, e, limit) in enumerate(rows)
    ]
    svg = light_curve_svg(table(points), quantity)
    root = ElementTree.fromstring(svg)
    assert "nan" not in svg
    for mark in root.iter("circle"):
        assert np.isfinite(float(mark.get("cx")))


def test_an_outlier_is_a_triangle_at_the_edge_and_is_counted():
    rows = [point("a", "lsst", n, 6e4 + n, flux=1e3 * (n % 5), forced=True) for n in range(99)]
    rows += [point("a", "lsst", 99, 60099.5, flux=-1e6, forced=True)]
    rows += [point("a", "lsst", n, 6e4 + n, flux=2e5) for n in (100, 101)]
    bulk, every = (light_curve_svg(table(rows), fit=fit) for fit in Fit)
    assert bulk.count('class="edge"') == 1
    assert '<g class="forced outside band-r"><path class="edge" d="M901.1 361.0h8l-4 7z">' in bulk
    assert bulk.count("−1,000.00 ± 0.10 µJy") == 1
    assert "edge" not in every
    assert bulk.count("<title>") == every.count("<title>") == 102
    low, high = (ElementTree.fromstring(svg).get("data-y").split() for svg in (bulk, every))
    assert float(low[1]) > -30 > -1000 > float(high[1])
    text = rendered(rows)
    assert "1 point lies far from all others, outside of the plot" in text
    assert 'href="/objects/a?fit=all">Plot every point</a>' in text
    text = rendered(rows, Choices(fit=Fit.ALL))
    assert 'href="/objects/a">Fit the plot to the others</a>' in text
    assert '<input type="hidden" name="fit" value="all">' in text
    assert "far from all others" not in rendered(rows, Choices(kinds=("detection",)))


def test_the_only_detections_among_many_forced_points_are_no_outliers():
    rows = [point("a", "lsst", n, 6e4 + n, flux=1e3 * (n % 5), forced=True) for n in range(999)]
    rows += [point("a", "lsst", 1000 + n, 6e4 + n, flux=1e6) for n in range(9)]
    assert "edge" not in light_curve_svg(table(rows))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), st.integers(1, 3))
def test_few_points_of_a_kind_are_outliers(values, kinds):
    kind = np.arange(len(values)) % kinds
    found = outliers(np.array(values), kind)
    for one in range(kinds):
        assert found[kind == one].sum() <= (kind == one).sum() / 50


@pytest.mark.parametrize(
    ("value", "error", "is_mag", "texts"),
    [
        (19584.321, 412.3, False, ("19,584", "412")),
        (2098.1234, 0.3456, False, ("2,098.12", "0.35")),
        (-0.0004, 0.12, False, ("0.00", "0.12")),
        (-45.678, 1.234, False, ("−45.7", "1.2")),
        (20.64712, 0.0543, True, ("20.647", "0.054")),
        (20.64712, 0.31, True, ("20.65", "0.31")),
        (123.456, 0.0, False, ("123", "")),
        (24.6512, np.nan, True, ("24.65", "")),
        (np.nan, 1.0, False, ("", "")),
    ],
)
def test_a_value_has_the_digits_that_its_error_leaves(value, error, is_mag, texts):
    assert measured(value, error, is_mag) == texts


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e9), st.integers(3, 9))
def test_ticks_are_round_few_and_inside(low, width, most):
    high = low + width
    ticks = nice_ticks(low, high, most)
    assert len(ticks) <= most + 1
    tolerance = width * 1e-6 + abs(low) * 1e-9
    assert all(low - tolerance <= value <= high + tolerance for value, _ in ticks)


def test_dates():
    assert date_of(51544.0) == "1 Jan 2000"
    assert [text for _, text in date_ticks(59215, 59280)] == ["Jan 2021", "Feb 2021", "Mar 2021"]
    assert [text for _, text in date_ticks(51543.5, 51546.5)] == [
        "1 Jan 2000",
        "2 Jan 2000",
        "3 Jan 2000",
    ]
    assert [text for _, text in date_ticks(51540, 53400)] == [
        f"{year}" for year in range(2000, 2006)
    ]


@pytest.mark.integration
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_browser_shows_the_page_without_errors(read):
    playwright = pytest.importorskip("playwright.sync_api")
    errors = []
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=150_000
        )
        context = browser.new_context(java_script_enabled=True)
        page = context.new_page()
        page.set_default_timeout(150_000)
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("requestfailed", lambda request: errors.append(request.url))
        page.goto(read.url + "/")
        page.fill("input[name=id]", str(ZTF_ALERT))
        page.click("button")
        page.wait_for_url(f"**/alerts/{ZTF_ALERT}")
        page.click(f"a[href^='{OBJECT_PAGE}']")
        page.wait_for_selector(f"#alert-{ZTF_ALERT}.chosen")
        page.wait_for_load_state("networkidle")
        images = page.locator("img")
        widths = images.evaluate_all("all => all.map(image => image.naturalWidth)")
        box = page.locator("svg.plot").bounding_box()
        marks = page.locator("svg.plot .detection :is(circle, .shape)").count()
        colour = page.locator("svg.plot .band-r circle").first.evaluate(
            "mark => getComputedStyle(mark).fill"
        )
        browser.close()
    # The front page shows the damaged image among the sample alerts.
    assert [error for error in errors if "422" not in error] == []
    assert widths == [63, 63, 63]
    assert box["width"] > 600
    assert box["height"] > 250
    assert marks == 2
    assert colour not in ("rgb(0, 0, 0)", "none")
