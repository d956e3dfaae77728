"""`stampede up` on one machine: a Kafka, a Ceph and all functions, from the first start on."""

import gzip
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from urllib.error import HTTPError

import pytest

from e2e.user import CHROMIUM, STORED_SECONDS, Running, Up, get, get_json, run, stored_counts, until
from stampede.alerts.columns import KINDS
from stampede.images.thumbnail import thumbnail
from stampede.simulator import Simulator
from stampede_local.ports import free_port
from tests.support import stored_alerts

COUNT = 300
SEED = 5
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    """What `stampede simulate` sends with the same options."""
    return Simulator(SEED, solar_system=0.05, null_cutouts=0.01)


@pytest.fixture(scope="module")
def alerts(simulator: Simulator) -> list:
    return list(simulator.alerts(COUNT))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("up") / "data"


@pytest.fixture(scope="module")
def first(data: Path):
    """The first start, stopped by the test that is about that."""
    with Up(data) as up:
        yield up


def test_alerts_go_in_and_nothing_is_missing(first: Up, alerts) -> None:
    to = f"kafka://{first.kafka}"
    sent = run("simulate", "--to", to, "--alerts", COUNT, "--seed", SEED).assert_done()
    assert f"\n{COUNT} alerts, " in f"\n{sent.said}"
    audit = first.wait_until_stored()
    assert stored_counts(audit) == {
        "cutouts": (COUNT, COUNT, 0),
        "detections": (COUNT, COUNT, 0),
    }


def test_all_of_it_comes_back(first: Up, simulator: Simulator, alerts) -> None:
    stored = stored_alerts.stored_cutouts(first.url, [alert.alert_id for alert in alerts])
    assert not stored_alerts.differences(stored_alerts.cutouts_of(alerts), stored)
    assert len(stored) > 2 * COUNT
    stored_alerts.assert_light_curves(first.url, simulator)


def test_one_by_id_with_curl(first: Up, alerts) -> None:
    alert = next(alert for alert in alerts if all(alert.fits.values()))
    about = get_json(f"{first.url}/v1/alerts/{alert.alert_id}")
    assert about["object_id"] == alert.object_id
    for kind, fits in alert.fits.items():
        url = first.url + about["cutouts"][kind]["href"]
        assert get(url) == fits
        assert gzip.decompress(get(url, **{"Accept-Encoding": "gzip"})) == fits
        assert get(f"{url}?format=png").startswith(b"\x89PNG")
    curve = get_json(first.url + about["lightcurve"])
    assert str(alert.alert_id) in [point["source_id"] for point in curve["detections"]]
    csv = get(f"{first.url}{about['lightcurve']}?format=csv").decode()
    assert len(csv.splitlines()) == len(curve["detections"]) + 1


def test_every_alert_gets_its_picture(first: Up, alerts) -> None:
    """The store tells of a pack, the relay the broker, the broker `thumbnails`: in seconds."""
    for alert in alerts:
        url = f"{first.url}/v1/alerts/{alert.alert_id}/thumbnail"
        until(partial(is_there, url), STORED_SECONDS)
        assert get(url) == thumbnail([alert.fits[kind] for kind in KINDS], Counter())


def is_there(url: str) -> bool:
    """Whether a GET finds anything; raises what is wrong but for 404."""
    try:
        return bool(get(url))
    except HTTPError as error:
        if error.code != 404:
            raise
        return False


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium")
def test_the_pages_in_a_browser(first: Up, simulator: Simulator, alerts) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    whole = [alert for alert in alerts if all(alert.fits.values())]
    alert = max(whole, key=lambda alert: len(simulator.light_curve(alert.object_id)))
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=150_000
        )
        page = browser.new_page()
        page.set_default_timeout(150_000)
        wrong: list[str] = []
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(f"{first.url}/")
        text = page.inner_text("body")
        assert "ztf-alerts" in text
        assert "lsst-alerts" in text
        page.goto(f"{first.url}/objects/{alert.object_id}")
        assert alert.object_id in page.inner_text("body")
        page.wait_for_load_state("networkidle")
        images = page.locator("img")
        assert images.count() >= 1
        widths = images.evaluate_all("all => all.map(one => one.naturalWidth)")
        assert all(width > 10 for width in widths)
        points = simulator.light_curve(alert.object_id)
        own = [point for point in points if not point.forced and not point.limit]
        assert page.locator("svg.plot .detection circle").count() == len(own) > 0
        browser.close()
    assert not wrong


def test_ctrl_c_stops_everything_and_the_next_start_finds_it_again(
    first: Up, data: Path, alerts
) -> None:
    assert len(first.family()) >= 11
    ended = first.stop(signal.SIGINT)  # also: no process, no port left
    ended.assert_done()
    assert "starting it again" not in ended.said
    assert not (data / "up.json").exists()
    with Up(data) as second:
        audit = second.audit().assert_done()
        assert stored_counts(audit)["cutouts"] == (COUNT, COUNT, 0)
        stored = stored_alerts.stored_cutouts(second.url, [alert.alert_id for alert in alerts])
        assert not stored_alerts.differences(stored_alerts.cutouts_of(alerts), stored)
        second.stop(signal.SIGTERM).assert_done()


def test_ctrl_c_while_it_starts(tmp_path: Path) -> None:
    with Running(tmp_path / "log", "up", "--data", tmp_path / "data", "--port", free_port()) as up:
        up.wait_for("monitor started|starting the Ceph")
        ended = up.stop(signal.SIGINT)
        assert ended.status not in (0, None)
        assert "ready" not in ended.said


def test_missing_programs_are_named(tmp_path: Path) -> None:
    """A machine without Ceph: one clear line, and the command that helps."""
    ended = run("up", "--no-install", "--data", tmp_path, "--port", free_port(), PATH=str(tmp_path))
    assert ended.status == 2
    assert "this machine lacks ceph-mon, ceph-osd, radosgw, ceph" in ended.said
    assert "sudo apt-get install --yes --no-install-recommends ceph-common" in ended.said
