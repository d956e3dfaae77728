"""No alert is lost when pods, the node, Ceph and Kafka die, or when the chart is upgraded."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.cluster.node import Node
from e2e.commands import until
from e2e.http import get
from e2e.on_cluster.background import repeat
from e2e.on_cluster.release import Release
from stampede.simulator.simulator import Simulator
from tests.support import stored_alerts

pytestmark = pytest.mark.timeout(1800)

VICTIMS = (  # those that have pods at the time
    "app.kubernetes.io/component in "
    "(source, cutouts, lightcurves, deadletters, thumbnails, replicate, notifications)"
)
DEATHS = 6  # at least; a slow machine sends for longer, and more pods die
LIMIT = "the limit is"  # part of the reason of a dead letter that is too large
SERVERS = ("ceph", "second-ceph", "kafka")


def simulated_alerts(seed: int, count: int) -> tuple[Simulator, list]:
    """The simulator, with the light curves, and the alerts that `stampede simulate` sends."""
    simulator = Simulator(seed, solar_system=0.05, null_cutouts=0.01)
    return simulator, list(simulator.alerts(count))


def simulate(release: Release, seed: int, count: int, rate: int = 0) -> None:
    """Send alerts, and wait until they are in Kafka."""
    seconds = 120 + (count / rate if rate else 0)
    release.stampede(
        *("simulate", "--alerts", count, "--seed", seed, "--rate", rate), seconds=seconds
    )


def assert_all_of_it_is_stored(release: Release, seed: int, count: int) -> None:
    """Compare the ledger, the bytes of each cutout, and every point of every light curve."""
    release.wait_until_stored(seconds=400)
    simulator, alerts = simulated_alerts(seed, count)
    bulk = release.url("bulk")
    stored = stored_alerts.stored_cutouts(bulk, [alert.alert_id for alert in alerts])
    assert not stored_alerts.differences(stored_alerts.cutouts_of(alerts), stored)
    assert stored_alerts.assert_light_curves(bulk, simulator)


def kill(release: Release, pod: dict) -> None:
    """Kill a pod as `kill -9` does: without a signal before, or time to drain."""
    name = pod["metadata"]["name"]
    force = ("--grace-period=0", "--force", "--wait=false")
    release.kubectl("delete", "pod", name, *force, check=False)


def test_pods_die_while_alerts_arrive(release: Release) -> None:
    rng, killed = random.Random(52), 0
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(simulate, release, 52, 750, 25)
        while killed < DEATHS or not sending.done():
            time.sleep(rng.uniform(1, 4))
            if pods := release.live_pods(VICTIMS):  # there is always a pod of the source
                kill(release, rng.choice(pods))
                killed += 1
        sending.result()
    assert_all_of_it_is_stored(release, 52, 750)


def test_ceph_kafka_and_the_node_restart_while_alerts_arrive(release: Release) -> None:
    simulate(release, 53, 1000)
    for name in SERVERS:
        release.cluster.kubectl(
            "--namespace", "site", "delete", "pod", "--selector", f"app={name}", "--wait=false"
        )
        time.sleep(5)
    if isinstance(
        node := release.cluster.backend, Node
    ):  # other clusters' nodes are not ours to restart
        node.restart()
        release.wait_until_ready()
    assert_all_of_it_is_stored(release, 53, 1000)
    release.wait_until_stored("--site", "replica", seconds=400)


def test_an_upgrade_under_load_and_a_poison_alert(release: Release) -> None:
    """No read fails and no alert is lost; alerts refused by a size limit are replayed later."""
    simulate(release, 55, 50)
    release.wait_until_stored()
    known = next(alert for alert in simulated_alerts(55, 50)[1] if alert.fits["science"])
    url = f"{release.url('read')}/v1/alerts/{known.alert_id}/cutouts/science"
    _, alerts = simulated_alerts(56, 500)
    limit = sorted(len(alert.body) for alert in alerts)[-50]  # 50 alerts are at least as large
    before = {pod["metadata"]["name"] for pod in release.pods("read")}

    def read() -> None:
        assert get(url) == known.fits["science"]

    def refused() -> int:
        letters = release.stampede(
            "deadletters", "list", "cutouts", "--reason", LIMIT, "--json"
        ).output
        return len(letters.splitlines())

    with repeat(read) as log:
        release.install(settings__max_alert_bytes=limit)
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(simulate, release, 56, 500, 20)
            until(lambda: refused() > 5, 180, 2)
            release.install(settings__max_alert_bytes=16 << 20)
            sending.result()
        release.wait_until_stored(seconds=400)
    assert not log.errors
    assert len(log.seconds) > 100
    assert before.isdisjoint(pod["metadata"]["name"] for pod in release.pods("read"))
    release.stampede("deadletters", "replay", "--all", check=False, seconds=300)
    assert_all_of_it_is_stored(release, 56, 500)
