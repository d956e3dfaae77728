"""A cluster with a small site and a release of the chart, while these tests run."""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cluster import choose
from e2e.cluster.built.binaries import tool
from e2e.cluster.steps import exclusive_use
from e2e.commands import CommandResult
from e2e.on_cluster import readme
from e2e.on_cluster.__main__ import temporarily_up
from e2e.on_cluster.failure import print_failure
from e2e.on_cluster.kubernetes import Cluster
from e2e.on_cluster.release import INSTALL_SECONDS, Release
from tests.support import tested_with


def pytest_configure(config: pytest.Config) -> None:
    tested_with.register(config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Print a failure when it happens: a run that is ended early shows it too."""
    report: Any = yield
    if report.failed:
        capture = item.config.pluginmanager.get_plugin("capturemanager")
        assert capture
        with capture.global_and_fixture_disabled():
            print_failure(report)
    return report


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """The cluster of `make e2e-up`. It stays up if it was up; otherwise a new one is started."""
    backend = choose()
    with exclusive_use(), temporarily_up(backend):
        cluster = Cluster(backend, tool("helm"))
        cluster.send_urls_to_ingress()
        yield cluster


@pytest.fixture(scope="package")
def release(cluster: Cluster, pytestconfig: pytest.Config) -> Iterator[Release]:
    """The chart with two sites, installed by the commands of docs/cluster.md."""
    release = Release(cluster, "stampede", "values.yaml")

    def install() -> CommandResult:
        try:
            return readme.run(cluster, "helm install", seconds=INSTALL_SECONDS)
        except AssertionError:  # helm keeps the name of a release that failed
            release.uninstall("--no-hooks", check=False)
            raise

    try:
        install()
    except AssertionError as error:
        capture = pytestconfig.pluginmanager.get_plugin("capturemanager")
        assert capture
        with capture.global_and_fixture_disabled():
            print(f"\n{error}\nthe first installation failed; the chart is installed again")
        install()
    release.wait_until_ready()
    yield release
    readme.run(cluster, "helm uninstall", seconds=INSTALL_SECONDS)
