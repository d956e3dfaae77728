"""A real KEDA scales the chart's sources on the lag of their consumer groups."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from e2e.cluster.built import keda
from e2e.commands import until
from e2e.on_cluster.kubernetes import Cluster
from e2e.on_cluster.load import sending, under_load
from e2e.on_cluster.release import Release

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

FUNCTIONS = ("cutouts", "lightcurves")
COUNT = 3000  # alerts of each seed
SEEDS, SEEDS_BACK = range(2000, 2030), range(2030, 2060)
SEEDS_KILLED = range(2060, 2090)
SEEDS_OUT, SEEDS_OUT_BY_POD = range(2090, 2110), range(2110, 2130)
# A fast host stores alerts as soon as they are simulated: the lag is what a pod has at work.
MOST, LAG = 3, 50


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[None]:
    """KEDA, while these tests use it: nothing can be made in a namespace that is being deleted."""
    try:
        keda.up(cluster.backend)
        yield
    finally:
        keda.down(cluster.backend)


def autoscaling(function_in_pod: bool = False) -> dict[str, Any]:
    """Values with which KEDA scales the source."""
    prefix = "sources__alerts__"
    scaled = {f"{prefix}autoscaling__{k}": v for k, v in (("min", 1), ("max", MOST), ("lag", LAG))}
    return scaled | ({f"{prefix}functionInPod": "true"} if function_in_pod else {})


def pods(release: Release) -> int:
    """How many pods read Kafka."""
    return len(release.live_pods("stampede/source=alerts"))


def scale_out(release: Release, seeds: Sequence[int]) -> None:
    """From one pod to several while alerts arrive, never more than the maximum; all are stored."""
    until(lambda: not release.not_ready("scaledobjects.keda.sh"), 120, 1)
    until(lambda: pods(release) == 1, 400, 1)
    most = 0

    def scaled() -> bool:
        nonlocal most
        most = max(most, pods(release))
        return most > 1

    # A burst is of one night. Alerts of many nights are as many small packs from every batch, which
    # the second site and thumbnails would be busy with for ten minutes.
    with sending(release, seeds, COUNT, 0, "--nights", 1):  # the autoscaler looks every 15 s
        until(scaled, 180, 0.5)
    release.wait_until_stored(seconds=400)
    assert most <= MOST


def test_sources_scale_on_lag(installed: None, release: Release) -> None:
    release.install(**autoscaling())
    try:
        scale_out(release, SEEDS_OUT)
    finally:
        release.install(**dict.fromkeys(autoscaling()))
    until(lambda: pods(release) == 1, 180, 1)


def test_functions_in_the_pods_of_sources_scale_with_them(
    installed: None, release: Release
) -> None:
    """No pod of Knative takes part. To this and back while alerts arrive, nothing is lost.

    Nor is it when their pods are killed: their partitions stand still for 15 s (values.yaml).
    """
    values = autoscaling(function_in_pod=True)
    try:
        with under_load(release, SEEDS):
            release.install(**values)
        until(lambda: not any(map(release.pods, FUNCTIONS)), 180, 1)
        scale_out(release, SEEDS_OUT_BY_POD)
        with under_load(release, SEEDS_KILLED):
            pod, *_ = release.live_pods("stampede/source=alerts")
            release.kill(pod["metadata"]["name"])
        assert not any(map(release.pods, FUNCTIONS))
        with under_load(release, SEEDS_BACK):
            release.install(**dict.fromkeys(values))
    finally:
        release.install(**dict.fromkeys(values))
    until(lambda: pods(release) == 1, 180, 1)
