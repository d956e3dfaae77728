"""Pods, the node, Ceph and Kafka die, the chart is upgraded, while alerts come: none is lost."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.cluster.node import Node
from e2e.on_cluster.release import Release, asking
from e2e.user import get, until
from stampede.simulator import Simulator
from tests.support import stored_alerts

pytestmark = pytest.mark.timeout(1800)

VICTIMS = (  # whoever of them has pods just then
    "app.kubernetes.io/component in "
    "(source, cutouts, lightcurves, deadletters, thumbnails, replicate, notifications)"
)
DEATHS = 6  # at least: how many fit into the time of sending is the machine's business
LIMIT = "the limit is"  # says a function of what is too large
SERVERS = ("ceph", "second-ceph", "kafka")


def expected_alert(seed: int, count: int) -> tuple[Simulator, list]:
    """What `stampede simulate` sends with the same options, and which light curves that makes."""
    simulator = Simulator(seed, solar_system=0.05, null_cutouts=0.01)
    return simulator, list(simulator.alerts(count))


def simulate(release: Release, seed: int, count: int, rate: int = 0) -> None:
    """Send alerts; they are in Kafka when it returns."""
    seconds = 120 + (count / rate if rate else 0)
    release.stampede(
        *("simulate", "--alerts", count, "--seed", seed, "--rate", rate), seconds=seconds
    )


def assert_all_of_it_is_stored(release: Release, seed: int, count: int) -> None:
    """By the ledger, by each cutout's bytes, and by every point of every light curve."""
    release.wait_until_stored(seconds=400)
    simulator, alerts = expected_alert(seed, count)
    bulk = release.url("bulk")
    stored = stored_alerts.stored_cutouts(bulk, [alert.alert_id for alert in alerts])
    assert not stored_alerts.differences(stored_alerts.cutouts_of(alerts), stored)
    assert stored_alerts.assert_light_curves(bulk, simulator)


def kill(release: Release, pod: dict) -> None:
    """As `kill -9` would: no signal before, no time to drain."""
    name = pod["metadata"]["name"]
    now = ("--grace-period=0", "--force", "--wait=false")
    release.kubectl("delete", "pod", name, *now, check=False)


def test_pods_die_while_alerts_come(release: Release) -> None:
    rng, killed = random.Random(52), 0
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(simulate, release, 52, 750, 25)
        while killed < DEATHS or not sending.done():
            time.sleep(rng.uniform(1, 4))
            if pods := release.alive(VICTIMS):  # the source's pod always comes back
                kill(release, rng.choice(pods))
                killed += 1
        sending.result()
    assert_all_of_it_is_stored(release, 52, 750)


def test_ceph_kafka_and_then_the_node_start_anew_while_alerts_come(release: Release) -> None:
    simulate(release, 53, 1000)
    for name in SERVERS:
        release.cluster.kubectl(
            "--namespace", "site", "delete", "pod", "--selector", f"app={name}", "--wait=false"
        )
        time.sleep(5)
    if isinstance(node := release.cluster.chosen, Node):  # others are not ours to restart
        node.restart()
        release.wait_until_ready()
    assert_all_of_it_is_stored(release, 53, 1000)
    release.wait_until_stored("--site", "replica", seconds=400)


def test_an_upgrade_under_load_and_a_poison_alert(release: Release) -> None:
    """No read fails, nothing is lost; what one upgrade's bound refuses, the next one's replays."""
    simulate(release, 55, 50)
    release.wait_until_stored()
    known = next(alert for alert in expected_alert(55, 50)[1] if alert.fits["science"])
    url = f"{release.url('read')}/v1/alerts/{known.alert_id}/cutouts/science"
    _, alerts = expected_alert(56, 500)
    bound = sorted(len(alert.body) for alert in alerts)[-50]  # the largest are too large
    before = {pod["metadata"]["name"] for pod in release.pods("read")}

    def read() -> None:
        assert get(url) == known.fits["science"]

    def refused() -> int:
        said = release.stampede("deadletters", "list", "cutouts", "--reason", LIMIT, "--json").said
        return len(said.splitlines())

    with asking(read) as asked:
        release.install(settings__max_alert_bytes=bound)
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(simulate, release, 56, 500, 20)
            until(lambda: refused() > 5, 180, 2)
            release.install(settings__max_alert_bytes=16 << 20)
            sending.result()
        release.wait_until_stored(seconds=400)
    assert not asked.wrong
    assert len(asked.seconds) > 100
    assert before.isdisjoint(pod["metadata"]["name"] for pod in release.pods("read"))
    release.stampede("deadletters", "replay", "--all", check=False, seconds=300)
    assert_all_of_it_is_stored(release, 56, 500)
