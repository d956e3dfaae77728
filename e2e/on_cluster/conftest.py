"""A cluster with a small site and a release of the chart on it, for as long as these tests run."""

from collections.abc import Iterator

import pytest

from e2e.cluster import choose
from e2e.cluster.binaries import tool
from e2e.cluster.steps import exclusive_use
from e2e.on_cluster import readme
from e2e.on_cluster.__main__ import up
from e2e.on_cluster.release import INSTALL_SECONDS, Cluster, Release


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """What `make e2e-up` brings up. It stays up if it was up, and is new if it was not."""
    chosen = choose()
    with exclusive_use():
        was_up = chosen.running
        if not was_up:
            chosen.down(wipe=True)
        try:
            up(chosen)
            cluster = Cluster(chosen, tool("helm"))
            cluster.open_urls()
            yield cluster
        finally:
            if not was_up:
                chosen.down(wipe=True)


@pytest.fixture(scope="package")
def release(cluster: Cluster) -> Iterator[Release]:
    """The chart, with two sites, installed as README says."""
    release = Release(cluster, "stampede", "values.yaml")
    readme.run(cluster, "helm install", seconds=INSTALL_SECONDS)
    release.wait_until_ready()
    yield release
    readme.run(cluster, "helm uninstall", seconds=INSTALL_SECONDS)
