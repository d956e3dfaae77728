"""Stampede on a cluster: alerts sent to Kafka can be read from the functions, at both sites."""

import gzip
import io
import tarfile
from functools import partial

import pytest

from e2e.commands import until
from e2e.http import found, get, get_json
from e2e.on_cluster.load import lacking_thumbnails
from e2e.on_cluster.release import Release
from e2e.places import CHROMIUM, REAL_ALERTS
from stampede.alerts.columns import KINDS
from stampede.images.thumbnail import thumbnail
from stampede.ingest import files
from stampede_local.demo.oracle import digest, expected_alert
from stampede_simulator.simulator import Mix, Simulator
from tests.support.store import stored_alerts

pytestmark = pytest.mark.timeout(1800)

COUNT = 400
SEED = 41
CORRUPT = 0.02
# Send each alert of a tar on standard input to the topic of its survey.
SEND = """
import sys, tarfile
from confluent_kafka import Producer
from stampede.config.settings import Settings
kafka = Producer({
    "bootstrap.servers": Settings().kafka,
    "message.max.bytes": 8 << 20,
    "queue.buffering.max.kbytes": 128 << 10,
})
for member in (tar := tarfile.open(fileobj=sys.stdin.buffer, mode="r|")):
    data = tar.extractfile(member).read()
    kafka.produce("lsst-alerts" if data[:1] == b"\\0" else "ztf-alerts", data)
    kafka.poll(0)
assert kafka.flush(60) == 0
"""
# Print the keys of objects that differ between the two sites.
DIFFERENCES = """
from stampede.config.settings import Settings
from stampede.store.open import open_objects, open_replica
first, second = open_objects(Settings()), open_replica(Settings())
for prefix in ("packs/", "thumbnails/"):
    for info in first.list(prefix):
        if first.get(info.key) != second.get(info.key):
            print(info.key)
"""


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    """The simulator with the options that are given to `stampede simulate`."""
    return Simulator(SEED, mix=Mix(solar_system=0.05, null_cutouts=0.01, corrupt=CORRUPT))


@pytest.fixture(scope="module")
def sent(release: Release, simulator: Simulator) -> list:
    """Simulated alerts that are in the store."""
    alerts = list(simulator.alerts(COUNT))
    simulate = ("simulate", "--alerts", COUNT, "--seed", SEED, "--corrupt", CORRUPT)
    assert f"{COUNT} alerts" in release.stampede(*simulate).output
    release.wait_until_stored()
    return alerts


def good(alerts: list) -> list:
    return [alert for alert in alerts if alert.fault is None]


def test_every_cutout_and_light_curve_comes_back(
    release: Release, sent: list, simulator: Simulator
) -> None:
    read, bulk = release.url("read"), release.url("bulk")
    stored = stored_alerts.stored_cutouts(bulk, [alert.alert_id for alert in sent])
    assert len(stored) > 2 * COUNT
    assert not stored_alerts.differences(stored_alerts.cutouts_of(good(sent)), stored)
    assert stored_alerts.assert_light_curves(bulk, simulator) > COUNT
    alert = next(alert for alert in good(sent) if all(alert.fits.values()))
    for kind in KINDS:
        url = f"{read}/v1/alerts/{alert.alert_id}/cutouts/{kind}"
        assert get(url) == alert.fits[kind]
        assert get(f"{url}?format=png").startswith(b"\x89PNG")


def test_corrupt_alerts_become_dead_letters(release: Release, sent: list) -> None:
    bad = [alert for alert in sent if alert.fault is not None]
    assert bad
    listed = release.stampede("deadletters", "list", "cutouts", "--json").output
    assert len(listed.splitlines()) >= len({alert.body for alert in bad})


def test_only_read_and_bulk_are_public(release: Release) -> None:
    for name in ("cutouts", "lightcurves", "deadletters", "thumbnails", "replicate"):
        assert ".svc.cluster.local" in release.url(name), name
    for name in ("read", "bulk"):
        assert ".svc.cluster.local" not in release.url(name), name


def test_every_alert_gets_its_thumbnail(release: Release, sent: list) -> None:
    """Bucket notification, relay, Broker and `thumbnails`, which starts from zero pods."""
    read = release.url("read")
    until(lambda: not lacking_thumbnails(release), 180, 3)
    for alert in good(sent)[::8]:
        url = f"{read}/v1/alerts/{alert.alert_id}/thumbnail?survey={alert.survey}"
        # `read` lists the table of thumbnails every two seconds, whatever it is asked for.
        until(partial(found, url), 60, 1)
        assert get(url) == thumbnail([alert.fits[kind] for kind in KINDS], alert.survey).png


def test_the_second_site_is_complete(release: Release, sent: list) -> None:
    release.wait_until_stored("--site", "replica")
    assert release.python(DIFFERENCES) == ""


@pytest.mark.skipif(not REAL_ALERTS.exists(), reason="needs the real alerts of ../shared/data")
def test_real_alerts_byte_by_byte(release: Release) -> None:
    bodies = [found.data for found in files.read(files.find([REAL_ALERTS]))]
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for number, body in enumerate(bodies):
            info = tarfile.TarInfo(f"{number}.avro")
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    release.python(SEND, tar.getvalue())
    release.wait_until_stored()
    sent = [alert for body in bodies if (alert := expected_alert(body))]
    expected = {
        (alert.survey, alert.alert_id, kind): value
        for alert in sent
        for kind, value in alert.cutouts.items()
    }
    stored = stored_alerts.stored_cutouts(release.url("bulk"), [alert.alert_id for alert in sent])
    assert {key: digest(fits) for key, fits in stored.items()} == expected
    assert len(expected) > 400


def test_a_single_cutout_is_sent_gzipped(release: Release, sent: list) -> None:
    alert = next(alert for alert in good(sent) if all(alert.fits.values()))
    url = f"{release.url('read')}/v1/alerts/{alert.alert_id}/cutouts/science"
    assert gzip.decompress(get(url, **{"Accept-Encoding": "gzip"})) == alert.fits["science"]
    about = get_json(f"{release.url('read')}/v1/alerts/{alert.alert_id}")
    assert about["object_id"] == alert.object_id


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium")
def test_the_page_of_an_object_in_a_browser(release: Release, sent: list) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    alert = next(alert for alert in good(sent) if all(alert.fits.values()))
    read = release.url("read")
    host = read.removeprefix("http://")
    with playwright.sync_playwright() as p:
        options = ["--no-sandbox", f"--host-resolver-rules=MAP {host} {release.cluster.ingress}"]
        browser = p.chromium.launch(executable_path=CHROMIUM, args=options, timeout=150_000)
        page = browser.new_page()
        page.set_default_timeout(150_000)
        page.goto(f"{read}/objects/{alert.object_id}")
        assert alert.object_id in page.inner_text("body")
        page.wait_for_load_state("networkidle")
        widths = page.locator("img").evaluate_all("all => all.map(one => one.naturalWidth)")
        assert widths
        assert all(width > 10 for width in widths)
        browser.close()
