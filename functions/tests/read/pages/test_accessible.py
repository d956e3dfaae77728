"""The pages in a real browser: axe finds no fault, light and dark, and the keyboard alone suffices.

axe-core measures contrast too: https://github.com/dequelabs/axe-core.
"""

import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.read.app import make_app
from tests.read.pages.test_every_page import PAGES, REAL_PAGES
from tests.read.pages.test_ledger_page import filled, keep_histories, refuse, verdict_on
from tests.support.alerts import made_alerts
from tests.support.read.read_service import LSST_ALERT, LSST_OBJECT, serving

CHROMIUM = shutil.which("chromium")
AXE = Path(__file__).parents[4] / "tools" / "axe"
CONTROLS = "a[href], button, input, select, summary, [tabindex='0']"
FOCUSED = """() => {
    const one = document.activeElement;
    const style = getComputedStyle(one);
    const all = [...document.querySelectorAll(CONTROLS)];
    return [all.indexOf(one), style.outlineStyle != 'none' && style.outlineWidth != '0px'];
}""".replace("CONTROLS", repr(CONTROLS))

# Chromium lets the keyboard scroll a plot on a narrow screen as it is; axe wants a tabindex.
RUN = """async () => {
    const plot = node => document.querySelector(node.target[0])?.matches('.scroll:has(> svg.plot)');
    const known = fault => fault.id == 'scrollable-region-focusable';
    return (await axe.run()).violations.flatMap(fault => fault.nodes
        .filter(node => !(known(fault) && plot(node)))
        .map(node => `${fault.id}: ${node.target}: ${node.failureSummary}`));
}"""

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm, which gets axe"),
]


@pytest.fixture(scope="module")
def axe() -> str:
    done = subprocess.run([AXE], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, "npm did not get axe"
    return Path(done.stdout.strip()).read_text()


@pytest.fixture(scope="module")
def browser() -> Iterator:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=150_000
        )
        yield browser
        browser.close()


def faults(browser, axe: str, urls: Iterable[str], scheme: str, width: int) -> list[str]:
    """What axe finds on these pages."""
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 1000}, bypass_csp=True
    )
    page = context.new_page()
    page.set_default_timeout(150_000)
    found = []
    for url in urls:
        page.goto(url)
        page.evaluate(axe)
        found += [f"{url} at {width}: {one}" for one in page.evaluate(RUN)]
    context.close()
    return found


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(read, browser, axe, scheme, width) -> None:
    paths = (
        *PAGES,
        f"/objects/{LSST_OBJECT}?axis=mag",
        f"/alerts/{LSST_ALERT}",
        "/objects/ZTF99nothing",
    )
    found = faults(browser, axe, [read.url + path for path in paths], scheme, width)
    assert not found, "\n".join(found)


@pytest.mark.skipif(not made_alerts.REAL.exists(), reason="needs the real alerts")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_pages_of_real_alerts(real, browser, axe, scheme) -> None:
    found = faults(browser, axe, [real.url + path for path in REAL_PAGES], scheme, 1400)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_where_nothing_is_missing(browser, axe, scheme) -> None:
    objects = filled([0, 1])
    refuse(objects, 2, "not an alert")
    keep_histories(objects, {"below the cut": 7})
    for read in serving(make_app(Settings(), objects)):
        assert verdict_on(read)[0] == "good"
        found = faults(browser, axe, [f"{read.url}/ledger"], scheme, 1400)
        assert not found, "\n".join(found)


def test_each_control_is_reached_by_tab_and_seen(read, browser) -> None:
    page = browser.new_page()
    page.set_default_timeout(150_000)
    for path in PAGES:
        page.goto(read.url + path)
        visible = page.locator(CONTROLS).evaluate_all(
            "all => all.map((one, i) => one.checkVisibility() ? i : -1).filter(i => i >= 0)"
        )
        reached = {}
        for _ in visible:
            page.keyboard.press("Tab")
            number, outlined = page.evaluate(FOCUSED)
            reached[number] = outlined
        assert set(reached) == set(visible), path
        assert all(reached.values()), path
    page.close()


def test_a_position_is_found_by_the_keyboard_alone(read, browser) -> None:
    page = browser.new_page()
    page.set_default_timeout(150_000)
    page.goto(read.url + "/")
    while page.evaluate("document.activeElement.name") != "id":
        page.keyboard.press("Tab")
    page.keyboard.type("10 -5 2arcmin")
    page.keyboard.press("Enter")
    page.wait_for_url("**/cone?ra=10&dec=-5&radius=2arcmin")
    page.close()
