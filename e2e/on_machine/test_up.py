"""`stampede up` on one machine: Kafka, Ceph and all functions."""

import gzip
import json
import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from e2e.commands import BackgroundCommand, run, until
from e2e.http import get, get_json
from e2e.places import CHROMIUM, ROOT
from e2e.stampede_up import STORED_SECONDS, StampedeUp, stored_counts
from stampede.alerts.columns import KINDS
from stampede.images.thumbnail import thumbnail
from stampede_local.ports import free_port
from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.simulator import Mix, Simulator
from tests.support.store import stored_alerts

FIRST_NIGHT = re.findall(
    r"^\$ stampede (.+)$", (ROOT / "docs" / "operate.md").read_text(), re.MULTILINE
)
COUNT = 300
SEED = 5
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    """The simulator with the options that are given to `stampede simulate`."""
    return Simulator(SEED, mix=Mix(solar_system=0.05, null_cutouts=0.01))


@pytest.fixture(scope="module")
def alerts(simulator: Simulator) -> list[SimulatedAlert]:
    return list(simulator.alerts(COUNT))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("up") / "data"


@pytest.fixture(scope="module")
def first(data: Path) -> Iterator[StampedeUp]:
    """The first start. The test of Ctrl-C stops it."""
    with StampedeUp(data) as up:
        yield up


def test_all_alerts_are_stored(first: StampedeUp, alerts: list[SimulatedAlert]) -> None:
    to = f"kafka://{first.kafka}"
    sent = run("simulate", "--to", to, "--alerts", COUNT, "--seed", SEED).assert_succeeded()
    assert f"\n{COUNT} alerts, " in f"\n{sent.output}"
    audit = first.wait_until_stored()
    assert stored_counts(audit) == {
        "cutouts": (COUNT, COUNT, 0),
        "detections": (COUNT, COUNT, 0),
    }


def test_all_cutouts_and_light_curves_can_be_read(
    first: StampedeUp, simulator: Simulator, alerts: list[SimulatedAlert]
) -> None:
    stored = stored_alerts.stored_cutouts(first.url, [alert.alert_id for alert in alerts])
    assert not stored_alerts.differences(stored_alerts.cutouts_of(alerts), stored)
    assert len(stored) > 2 * COUNT
    stored_alerts.assert_light_curves(first.url, simulator)


def test_one_alert_by_its_id(first: StampedeUp, alerts: list[SimulatedAlert]) -> None:
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


def test_every_alert_gets_its_thumbnail(first: StampedeUp, alerts: list[SimulatedAlert]) -> None:
    """Bucket notification, relay, broker and `thumbnails` work within seconds."""
    for alert in alerts:
        url = f"{first.url}/v1/alerts/{alert.alert_id}/thumbnail"
        until(partial(exists, url), STORED_SECONDS)
        assert get(url) == thumbnail([alert.fits[kind] for kind in KINDS], alert.survey).png


def exists(url: str) -> bool:
    """Whether a GET finds the URL. Raises HTTPError for errors that do not ask to try again."""
    try:
        return bool(get(url))
    except HTTPError as error:
        if error.code not in (404, 429, 503):  # a busy machine
            raise
        return False


@pytest.mark.parametrize("command", FIRST_NIGHT)
def test_the_commands_of_the_first_night(first: StampedeUp, command: str) -> None:
    run(*command.split(), "--data", first.data).assert_succeeded()


def test_strangers_may_not_send_events(first: StampedeUp) -> None:
    """Each run draws a key, which Ceph has too, and which nothing stores or logs."""
    path = first.data / "up.json"
    assert path.stat().st_mode & 0o777 == 0o600
    running = json.loads(path.read_text())
    key = running["event_key"]
    assert len(key) > 30
    event = {
        "ce-specversion": "1.0",
        "ce-type": "dev.knative.kafka.event",
        "ce-source": "/apis/v1/namespaces/default/kafkasources/test#strange",
        "ce-subject": "partition:0#999",
        "ce-id": "999",
    }
    for name, url in running["urls"].items():
        if name == "read":
            continue
        for more in ({}, {"authorization": "Bearer wrong"}, {"ce-accesskey": "wrong"}):
            request = Request(url, data=b"x", headers=event | more, method="POST")
            with pytest.raises(HTTPError) as raised:
                urlopen(request, timeout=60)
            assert raised.value.code == 401, name
    # Ceph's notifications arrive at the relay, and from there at the function.
    for name in ("notifications", "broker", "thumbnails"):
        metrics = get(f"{running['urls'][name]}/metrics").decode()
        counted = re.search(
            rf'events_total{{function="{name}",outcome="stored"}} ([0-9.]+)', metrics
        )
        assert counted, name
        assert float(counted[1]) > 0
    request = Request(
        running["urls"]["deadletters"] + "/cutouts",
        data=b"x",
        headers=event | {"ce-accesskey": key},
        method="POST",
    )
    assert urlopen(request, timeout=60).status == 204
    shown = run("deadletters", "list", "--json", "--data", first.data).assert_succeeded()
    assert "strange" in shown.output
    purge = run("deadletters", "purge", "--all", "--yes", "--data", first.data)
    logs = [log.read_bytes() for log in (first.data / "logs").iterdir()]
    assert key.encode() not in b"".join(logs)
    assert key not in shown.output + purge.assert_succeeded().output


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium")
def test_the_pages_in_a_browser(
    first: StampedeUp, simulator: Simulator, alerts: list[SimulatedAlert]
) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    complete = [alert for alert in alerts if all(alert.fits.values())]
    alert = max(complete, key=lambda alert: len(simulator.light_curve(alert.object_id)))
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=150_000
        )
        page = browser.new_page()
        page.set_default_timeout(150_000)
        errors: list[str] = []
        page.on(
            "console", lambda entry: errors.append(entry.text) if entry.type == "error" else None
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{first.url}/")
        assert "is stored" in page.inner_text("body")
        page.get_by_role("link", name="Ledger", exact=True).click()
        page.wait_for_url("**/ledger")
        text = page.inner_text("body")
        assert "ztf-alerts" in text
        assert "lsst-alerts" in text
        page.goto(f"{first.url}/objects/{alert.object_id}")
        assert alert.object_id in page.inner_text("body")
        page.wait_for_load_state("networkidle")
        images = page.locator("img")
        assert images.count() >= 1
        widths = images.evaluate_all(
            """all => Promise.all(all.map(one => {
                one.loading = "eager";
                return one.decode().then(() => one.naturalWidth);
            }))"""
        )
        assert all(width > 10 for width in widths)
        points = simulator.light_curve(alert.object_id)
        detections = [point for point in points if not point.forced and not point.limit]
        marks = "svg.plot .detection :is(circle, path.shape)"  # a shape for each band
        assert page.locator(marks).count() == len(detections) > 0
        browser.close()
    assert not errors


def test_ctrl_c_stops_everything_and_the_data_stays(
    first: StampedeUp, data: Path, alerts: list[SimulatedAlert]
) -> None:
    assert len(first.descendants()) >= 11
    result = first.stop(signal.SIGINT)  # also checks that no process and no port is left
    result.assert_succeeded()
    assert "starting it again" not in result.output
    assert result.output.rstrip().endswith("stopped")
    assert not (data / "up.json").exists()
    with StampedeUp(data) as second:
        audit = second.audit().assert_succeeded()
        assert stored_counts(audit)["cutouts"] == (COUNT, COUNT, 0)
        stored = stored_alerts.stored_cutouts(second.url, [alert.alert_id for alert in alerts])
        assert not stored_alerts.differences(stored_alerts.cutouts_of(alerts), stored)
        second.stop(signal.SIGTERM).assert_succeeded()


def test_ctrl_c_while_it_starts(tmp_path: Path) -> None:
    with BackgroundCommand(
        tmp_path / "log", "up", "--data", tmp_path / "data", "--port", free_port()
    ) as up:
        up.wait_for("monitor started|starting the Ceph")
        result = up.stop(signal.SIGINT)
        assert result.status not in (0, None)
        assert "ready" not in result.output


def test_missing_programs_are_named(tmp_path: Path) -> None:
    """A machine without Ceph: one clear line, and the command that installs it."""
    result = run(
        "up", "--no-install", "--data", tmp_path, "--port", free_port(), PATH=str(tmp_path)
    )
    assert result.status == 2
    assert "this machine lacks ceph-mon, ceph-osd, radosgw, ceph" in result.output
    assert "sudo apt-get install --yes --no-install-recommends ceph-common" in result.output
