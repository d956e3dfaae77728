"""A night's alerts are copied to a second site while processes are killed at random."""

import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, product
from pathlib import Path

import pytest

from e2e.commands import run, until
from e2e.http import get
from e2e.stampede_up import STORED_SECONDS, SecondSiteRead, StampedeUp, stored_counts
from stampede.alerts.columns import KINDS
from stampede.cli.running import running
from stampede.images.thumbnail import thumbnail
from stampede.store.open import open_objects, open_replica
from stampede.store.runs.schema import THUMBNAILS
from stampede.store.tables.table import Table
from stampede_local.ports import free_port
from stampede_local.servers import USUAL_PORTS
from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.cli import paced
from stampede_simulator.simulator import Mix, Simulator
from stampede_simulator.write import write
from tests.support.store import stored_alerts

COUNT = int(os.environ.get("STAMPEDE_E2E_ALERTS", "5000"))
RATE = 120  # alerts a second: the machine keeps up despite the restarts, and is never idle
SEED = 31
GRACE = "20"  # seconds before reconcile checks a pack
EVENTS = ("notifications", "broker", "thumbnails", "replicate", "reconcile")
ALERTS = ("alerts", "deadletters", "compact", "read")
VICTIMS = (*EVENTS, *ALERTS, "second-radosgw")
DEATHS = 4 * len(VICTIMS)  # at most; a slow machine would do nothing but restart processes


class Sent:
    """What was sent: the ids of all alerts, and a sample of whole alerts."""

    def __init__(self) -> None:
        self.good: set[tuple[str, int]] = set()
        self.with_images: set[tuple[str, int]] = set()
        self.refused: dict[str, set[bytes]] = {"cutouts": set(), "detections": set()}
        self.sample: list[SimulatedAlert] = []

    def record(self, alerts: Iterator[SimulatedAlert]) -> Iterator[SimulatedAlert]:
        for number, alert in enumerate(alerts):
            if alert.fault is not None:
                for table in stored_alerts.refused_by(alert.fault):
                    self.refused[table].add(alert.body)
            else:
                self.good.add((alert.survey, alert.alert_id))
                if any(alert.fits.values()):
                    self.with_images.add((alert.survey, alert.alert_id))
                if number % 50 == 0:
                    self.sample.append(alert)
            yield alert


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data directory with free ports. It grows to gigabytes, so only the logs are kept."""
    data = tmp_path / "data"
    data.mkdir()
    ports = {name: free_port(2) for name in USUAL_PORTS}
    (data / "ports.json").write_text(json.dumps(ports))
    yield data
    for name in ("ceph", "second-site", "kafka"):
        shutil.rmtree(data / name, ignore_errors=True)


@pytest.mark.timeout(2400)
@pytest.mark.nightly
def test_both_sites_are_complete_when_processes_are_killed(tmp_path: Path, data: Path) -> None:
    rng = random.Random(SEED)
    simulator = Simulator(SEED, mix=Mix(corrupt=0.004, duplicates=0.02))
    sent, killed = Sent(), Counter[str]()
    with (
        StampedeUp(data, "--second-site", STAMPEDE_GRACE_SECONDS=GRACE) as up,
        ThreadPoolExecutor(1) as thread,
    ):
        alerts = paced(sent.record(simulator.alerts(COUNT)), RATE)
        sending = thread.submit(write, alerts, f"kafka://{up.kafka}")
        for name in cycle(rng.sample(VICTIMS, len(VICTIMS))):
            time.sleep(rng.uniform(0.5, 3.5))
            if killed.total() >= DEATHS or (sending.done() and len(killed) == len(VICTIMS)):
                break
            for process in rng.sample(found := up.processes(name), min(1, len(found))):
                print(f"kill -9 {name} {process.pid}")
                process.kill()
                killed[name] += 1
        assert sending.result() == COUNT

        counts = stored_counts(up.wait_until_stored())
        received, stored, dead = counts["cutouts"]
        # A producer may send a record again if it got no response.
        assert received >= COUNT
        assert stored + dead == received
        system = running(data)
        assert system is not None
        settings = system.settings
        sites = open_objects(settings), open_replica(settings)
        first, second = (Table(site, THUMBNAILS) for site in sites)
        until(lambda: sent.with_images <= thumbnails_of(first, sent), STORED_SECONDS, 1)
        up.wait_until_stored("--site", "replica")
        run("reconcile", "--all", "--data", data).assert_succeeded()
        assert thumbnails_of(second, sent) == thumbnails_of(first, sent)
        for site, (table, refused) in product(sites, sent.refused.items()):
            letters = stored_alerts.letters(site, table).values()
            assert {letter.data for letter in letters} == refused

        with SecondSiteRead(tmp_path / "second.log", settings) as read:
            for url in (up.url, read.url):
                assert_sample_is_stored(url, sent, simulator)
            read.stop().assert_succeeded()
        up.assert_restarted(*VICTIMS)
        assert up.output().count("starting it again") >= killed.total()
        up.stop().assert_succeeded()


def thumbnails_of(table: Table, sent: Sent) -> set[tuple[str, int]]:
    """Survey and id of the sent alerts that have a thumbnail."""
    table.refresh()
    rows = table.lookup([alert_id for _, alert_id in sent.good]).to_pylist()
    return {(row["survey"], row["alert_id"]) for row in rows} & sent.good


def assert_sample_is_stored(read: str, sent: Sent, simulator: Simulator) -> None:
    """Compare a sample: bytes of cutouts and thumbnails, points of light curves."""
    stored = stored_alerts.stored_cutouts(read, [alert.alert_id for alert in sent.sample])
    assert not stored_alerts.differences(stored_alerts.cutouts_of(sent.sample), stored)
    assert stored_alerts.assert_light_curves(read, simulator, simulator.object_ids[::20])
    for alert in sent.sample:
        picture = get(f"{read}/v1/alerts/{alert.alert_id}/thumbnail?survey={alert.survey}")
        assert picture == thumbnail([alert.fits[kind] for kind in KINDS], alert.survey).png
