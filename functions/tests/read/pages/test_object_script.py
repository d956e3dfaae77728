"""The script of an object's page, in a real browser."""

import re
import shutil
from collections.abc import Iterator

import pytest

from stampede.alerts.columns import KINDS
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from tests.support.alerts.fits_files import ztf_source
from tests.support.read.read_service import cutout, fill, point, serving
from tests.support.waiting import eventually

CHROMIUM = shutil.which("chromium")
PLACES = """() => [...document.querySelectorAll("svg.plot .detection :is(circle, .shape)")].map(
    mark => { const box = mark.getBoundingClientRect(); return box.x + box.width / 2; })"""

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]


@pytest.fixture(scope="module")
def page() -> Iterator:
    """The page of an object with 40 detections in two bands and forced points; errors fail."""
    playwright = pytest.importorskip("playwright.sync_api")
    objects, errors = MemoryObjects(), list[str]()
    numbers = range(1, 41)
    bands = {number: "gr"[number % 2] for number in numbers}
    cutouts = [
        cutout(number, "ztf", kind, "ZTF1", 59000.0 + number, ztf_source(number))
        for number in numbers
        for kind in KINDS
    ]
    points = [
        point("ZTF1", "ztf", n, 59000.0 + n, band=bands[n], flux=1e3 + 1e4 * (n % 7))
        for n in numbers
    ]
    points += [point("ZTF1", "ztf", 99, 59050.0, forced=True), point("ZTF1", "ztf", 100, 58999.0)]
    fill(objects, cutouts, points, Coverage.of({("ztf", 0): [1]}))
    for read in serving(make_app(Settings(), objects)):
        with playwright.sync_playwright() as p:
            browser = p.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox"], timeout=150_000
            )
            page = browser.new_page(viewport={"width": 1400, "height": 1000})
            page.set_default_timeout(150_000)
            page.on("console", lambda message: errors.append(message.text))
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.goto(f"{read.url}/objects/ZTF1")
            page.wait_for_selector(".peek")
            yield page
            browser.close()
            assert errors == []


@pytest.fixture(autouse=True)
def whole(page) -> None:
    page.evaluate("localStorage.clear()")
    page.keyboard.press("Escape")
    page.locator(".zoom button").last.click()


def span(places: list[float]) -> float:
    return max(places) - min(places)


def test_keys_enlarge_and_show_all_again(page):
    before = page.evaluate(PLACES)
    page.locator("svg.plot").focus()
    page.keyboard.press("+")
    assert span(page.evaluate(PLACES)) == pytest.approx(1.5 * span(before), rel=0.01)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("-")
    page.keyboard.press("0")
    assert page.evaluate(PLACES) == pytest.approx(before, abs=0.1)


def test_a_box_that_is_drawn_fills_the_plot_and_a_double_click_shows_all(page):
    before = page.evaluate(PLACES)
    box = page.locator("svg.plot").bounding_box()
    left, top = box["x"], box["y"]
    page.mouse.move(left + 0.4 * box["width"], top + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(left + 0.6 * box["width"], top + 0.7 * box["height"], steps=4)
    page.mouse.up()
    assert span(page.evaluate(PLACES)) > 4 * span(before)
    days = page.locator("svg.plot .ticks text").all_text_contents()
    assert any(re.fullmatch(r"\d+ (May|Jun|Jul) 2020", day) for day in days), days
    assert any(re.fullmatch(r"\d\d", text) for text in days), days
    page.mouse.dblclick(left + 0.5 * box["width"], top + 0.5 * box["height"])
    assert page.evaluate(PLACES) == pytest.approx(before, abs=0.1)


def test_ctrl_and_the_wheel_enlarge_about_the_pointer(page):
    before = page.evaluate(PLACES)
    page.mouse.move(before[0], page.locator("svg.plot").bounding_box()["y"] + 100)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    eventually(lambda: span(page.evaluate(PLACES)) > 1.2 * span(before))
    after = page.evaluate(PLACES)
    assert span(after) == pytest.approx(1.25 * span(before), rel=0.01)
    assert after[0] == pytest.approx(before[0], abs=1)


def test_a_point_shows_its_alert_by_the_pointer_and_by_the_keyboard(page):
    link = page.locator("svg.plot a[href='/alerts/12?survey=ztf']")
    link.hover()
    page.wait_for_selector(".peek img")
    assert "MJD 59012.0000" in page.locator(".peek").inner_text()
    sources = page.locator(".peek img").evaluate_all("all => all.map(one => one.src)")
    assert [re.search("alerts/12/cutouts/([a-z]+)", source)[1] for source in sources] == [*KINDS]
    page.locator("svg.plot a[href='/alerts/13?survey=ztf']").focus()
    page.get_by_role("link", name="alert 13", exact=True).wait_for()
    widths = "all => all.map(one => one.naturalWidth)"
    eventually(lambda: page.locator(".peek img").evaluate_all(widths) == [126, 126, 126])


def test_the_legend_shows_and_hides_without_a_reload(page):
    points = page.locator("svg.plot .detection.band-g .shape")
    page.locator("#show-g").uncheck()
    assert not points.first.is_visible()
    page.locator("#show-g").check()
    assert points.first.is_visible()


def test_what_is_chosen_is_in_the_address_and_survives_a_reload(page):
    page.locator("#show-g").uncheck()
    page.locator("#show-forced").uncheck()
    page.locator("svg.plot").focus()
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile(r"\?(?=.*bands=r&)(?=.*axis=flux).*kinds=detection.*#zoom="))
    assert "bands=r" in page.get_by_role("link", name="show magnitudes").get_attribute("href")
    before = page.evaluate(PLACES)
    page.reload()
    page.wait_for_selector(".peek")
    assert not page.locator("#show-g").is_checked()
    assert page.evaluate(PLACES)[-3:] == pytest.approx(before[-3:], abs=0.2)
    page.keyboard.press("Escape")
    page.locator(".zoom button").last.click()
    page.locator("#show-g").check()
    page.locator("#show-forced").check()
    page.wait_for_url(re.compile(r"/objects/ZTF1\?axis=flux$"))


def test_the_axis_is_remembered_for_the_next_object(page):
    path = page.url.partition("?")[0]
    page.goto(path)
    page.get_by_role("link", name="show magnitudes").click()
    page.wait_for_url("**/objects/ZTF1?axis=mag")
    page.goto(path)
    page.wait_for_url("**/objects/ZTF1?axis=mag")
    page.goto(f"{path}?axis=flux")  # an address with an axis shows that one
    assert page.locator("svg.plot").get_attribute("data-axis") == "flux"
    page.goto(path)
    page.wait_for_url("**/objects/ZTF1?axis=mag")
    page.get_by_role("link", name="show flux").click()
    page.wait_for_selector("svg.plot[data-axis=flux]")
    page.wait_for_timeout(200)
    assert page.url == path
