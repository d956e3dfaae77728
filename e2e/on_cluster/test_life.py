"""No alert is lost when pods, the node, Ceph and Kafka die."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.cluster.existing import ExistingCluster
from e2e.commands import until
from e2e.on_cluster.load import assert_all_of_it_is_stored, simulate
from e2e.on_cluster.release import Release

pytestmark = pytest.mark.timeout(1800)

VICTIMS = (  # those that have pods at the time
    "app.kubernetes.io/component in "
    "(source, cutouts, lightcurves, deadletters, thumbnails, replicate, notifications)"
)
DEATHS = 6  # at least; a slow machine sends for longer, and more pods die
SERVERS = ("ceph", "second-ceph", "kafka")


def test_pods_die_while_alerts_arrive(release: Release) -> None:
    rng, killed = random.Random(52), 0
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(simulate, release, 52, 750, 25)
        while killed < DEATHS or not sending.done():
            time.sleep(rng.uniform(1, 4))
            if pods := release.live_pods(VICTIMS):  # there is always a pod of the source
                release.kill(rng.choice(pods)["metadata"]["name"])
                killed += 1
        sending.result()
    assert_all_of_it_is_stored(release, 52, 750)


@pytest.mark.long
def test_services_stay_when_kube_proxy_compares_all_its_rules(release: Release) -> None:
    """As it does once an hour, and when it starts. Then pods find Kafka by its name."""
    if isinstance(release.cluster.backend, ExistingCluster):
        pytest.skip("this cluster's kube-proxy is not ours")
    find = "import socket; socket.create_connection(('kafka.site.svc', 9092), 5).close()"
    for _ in range(2):  # rules that were taken away the first time came back the second time
        before = proxies(release)
        release.cluster.kubectl("--namespace", "kube-system", "delete", "pod", *before)
        until(lambda old=before: replaced(old, proxies(release)), 120, 1)
        time.sleep(10)  # the first comparison comes seconds after the start
        release.python(find)


def replaced(before: list[str], now: list[str]) -> bool:
    """Whether as many others run as did before."""
    return len(now) == len(before) and set(now).isdisjoint(before)


def proxies(release: Release) -> list[str]:
    """Names of the pods of kube-proxy that run, one on each node."""
    pods = release.cluster.get("pods", "kube-system", "--selector", "k8s-app=kube-proxy")
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]


@pytest.mark.long
def test_ceph_kafka_and_the_node_restart_while_alerts_arrive(release: Release) -> None:
    simulate(release, 53, 1000)
    for name in SERVERS:
        release.cluster.kubectl(
            "--namespace", "site", "delete", "pod", "--selector", f"app={name}", "--wait=false"
        )
        time.sleep(5)
    backend = release.cluster.backend
    if not isinstance(backend, ExistingCluster):  # whose nodes are not ours to restart
        backend.restart()
        release.wait_until_ready()
    assert_all_of_it_is_stored(release, 53, 1000)
    release.wait_until_stored("--site", "replica", seconds=400)
