"""A real KEDA scales the chart's sources on the lag of their consumer groups."""

from collections.abc import Iterator

import pytest

from e2e.cluster import keda
from e2e.commands import until
from e2e.on_cluster.kubernetes import Cluster
from e2e.on_cluster.load import simulate
from e2e.on_cluster.release import Release

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

SOURCES = ("cutouts", "lightcurves")
SEED, COUNT = 91, 3000
MOST, LAG = 3, 100


@pytest.fixture
def installed(cluster: Cluster) -> Iterator[None]:
    """KEDA, while a test uses it."""
    kubectl = keda.up(cluster.backend)
    yield
    kubectl("delete", "namespace", keda.NAMESPACE, "--wait=false")
    kubectl("delete", "apiservice", "v1beta1.external.metrics.k8s.io")


def pods(release: Release, function: str) -> int:
    return len(release.live_pods(f"stampede/source=alerts-{function}"))


def test_sources_scale_on_lag(installed: None, release: Release) -> None:
    """From one pod to several while alerts wait, never more than the maximum; nothing is lost."""
    autoscaling = "sources__alerts__autoscaling__"
    release.install(
        **{f"{autoscaling}{k}": v for k, v in (("min", 1), ("max", MOST), ("lag", LAG))}
    )
    until(lambda: not release.not_ready("scaledobjects.keda.sh"), 120, 1)
    try:
        assert [pods(release, function) for function in SOURCES] == [1, 1]
        simulate(release, SEED, COUNT)
        most = 0

        def scaled() -> bool:
            nonlocal most
            most = max(most, *(pods(release, function) for function in SOURCES))
            return most > 1

        until(scaled, 180, 0.5)
        release.wait_until_stored(seconds=400)
        assert most <= MOST
    finally:
        release.install(**{f"{autoscaling}{name}": None for name in ("min", "max", "lag")})
    until(lambda: [pods(release, function) for function in SOURCES] == [1, 1], 180, 1)
