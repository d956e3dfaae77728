"""With the chart's own numbers of pods a node may go: nothing is lost, and the others answer."""

import time
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from e2e.background import background
from e2e.commands import until
from e2e.http import get_within
from e2e.on_cluster.kubernetes import Cluster
from e2e.on_cluster.load import (
    PART,
    assert_both_sites_have,
    sending,
    simulate,
    simulated_alerts,
    under_load,
)
from e2e.on_cluster.nodes import Worker, nodes_of, workers
from e2e.on_cluster.release import Release

pytestmark = pytest.mark.timeout(1800)

KEPT = ("cutouts", "lightcurves", "notifications", "read", "source")
AT_LEAST: dict[str, Any] = {
    f"functions.{name}.scaling.min-scale": 2 for name in ("cutouts", "lightcurves")
}
SOON = 30.0
"""Seconds after which the other nodes answer."""


@pytest.fixture
def several(cluster: Cluster) -> list[Worker]:
    """Two or more workers."""
    if len(found := workers(cluster)) < 2:
        pytest.skip("this cluster has fewer than two workers: make e2e WORKERS=2 starts them")
    return found


@pytest.fixture
def spread(release: Release, several: list[Worker]) -> Iterator[list[Worker]]:
    """The workers, with a pod of each part that is kept on two of them."""
    release.install(**AT_LEAST)
    for name in KEPT:
        if len(nodes_of(release, component(name))) == 1:  # since a worker was drained
            first, *_ = release.live_pods(component(name))
            release.kubectl("delete", "pod", first["metadata"]["name"], "--wait=false")
    until(lambda: all(len(nodes_of(release, component(name))) >= 2 for name in KEPT), 120, 1)
    yield several
    release.install(**dict.fromkeys(AT_LEAST))


def component(name: str) -> str:
    """What selects the pods of a part of the release."""
    return f"app.kubernetes.io/component={name}"


@pytest.mark.usefixtures("several")
def test_what_is_kept_by_default_is_on_two_nodes(release: Release) -> None:
    for name in ("notifications", "read", "source"):  # the tests' values change the others
        until(lambda each=name: len(nodes_of(release, component(each))) == 2, 60, 1)


@pytest.mark.long
def test_a_worker_is_drained_under_load(release: Release, spread: list[Worker]) -> None:
    with under_load(release, range(700, 760)), spread[0].drained():
        for name in KEPT:
            assert nodes_of(release, component(name)) == {spread[1].name}, name


@pytest.mark.long
@pytest.mark.parametrize(("how", "seed"), [("stopped", 760), ("cut_off", 820)])
def test_a_worker_goes_under_load(
    release: Release, spread: list[Worker], how: str, seed: int
) -> None:
    (toolbox,) = nodes_of(release, component("toolbox"))  # the tests send and audit from there
    (gone,) = [worker for worker in spread if worker.name != toolbox]
    simulate(release, seed, PART)
    release.wait_until_stored()
    failed: list[float] = []
    with sending(release, range(seed + 1, seed + 60), rate=5) as sent:
        time.sleep(10)
        with getattr(gone, how)():
            with background(lambda stop: read_until(stop, release, seed, failed)):
                begin = time.monotonic()
                time.sleep(90)
            late = [when - begin for when in failed if when - begin > SOON]
            assert not late, f"reads failed {late} s after {gone.name} was {how}"
    release.wait_until_ready()
    release.wait_until_stored(seconds=700)
    assert_both_sites_have(release, sent)


def read_until(stop: Event, release: Release, seed: int, failed: list[float]) -> None:
    """Read a cutout until `stop`; add when a read began that failed, or took over ten seconds."""
    known = next(alert for alert in simulated_alerts(seed, PART)[1] if alert.fits["science"])
    url = f"{release.url('read')}/v1/alerts/{known.alert_id}/cutouts/science"
    while not stop.is_set():
        begin = time.monotonic()
        try:
            assert get_within(10, url) == known.fits["science"]
        except OSError as error:
            print(f"{error!r}")
            failed.append(begin)
        stop.wait(0.05)
