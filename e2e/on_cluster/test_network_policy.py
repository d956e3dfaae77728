"""NetworkPolicies are enforced, for connections to the functions' pods and from them."""

import json

import pytest

from e2e.commands import until
from e2e.on_cluster.release import Release

pytestmark = pytest.mark.timeout(600)

QUEUE_PROXY = 8012  # the port of a function's pod that Knative sends requests to
DNS_METRICS = 9153  # a port of CoreDNS that no rule allows
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)
except OSError as error:
    print(error)
else:
    print("yes")
"""


def reaches(release: Release, address: str) -> bool:
    """Whether a pod of the namespace `site` can connect to an address of the pods' network."""
    connect = f"timeout 3 bash -c 'exec 3<>/dev/tcp/{address}/{QUEUE_PROXY}' && echo yes || echo no"
    line = ("--namespace", "site", "exec", "statefulset/ceph", "--", "bash", "-c", connect)
    return release.cluster.kubectl(*line).output == "yes\n"


def test_a_pod_of_another_namespace_cannot_reach_a_function(release: Release) -> None:
    name = f"{release.name}-functions"
    address = release.pods("read")[0]["status"]["podIP"]
    until(lambda: not reaches(release, address), 60, 1)
    (policy,) = release.get("networkpolicies", name)
    release.kubectl("delete", "networkpolicy", name)
    try:
        until(lambda: reaches(release, address), 60, 1)  # only the policy has denied it
    finally:
        for given in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
            policy["metadata"].pop(given, None)
        release.kubectl("apply", "--server-side", "--filename", "-", stdin=json.dumps(policy))
    until(lambda: not reaches(release, address), 60, 1)


def connects(release: Release, host: str, port: int) -> bool:
    """Whether the toolbox, which has the policy of sources, can connect to a port."""
    return release.in_toolbox("python3", "-c", CONNECT, host, port).output == "yes\n"


@pytest.mark.long
def test_pods_connect_only_to_what_the_values_name(release: Release) -> None:
    pods = release.cluster.get("pods", "kube-system", "--selector", "k8s-app=kube-dns")
    dns = pods[0]["status"]["podIP"]
    until(lambda: connects(release, dns, DNS_METRICS), 60, 1)  # only the policy will deny it
    release.install(networkPolicy__egress__enabled="true")
    try:
        until(lambda: not connects(release, dns, DNS_METRICS), 60, 1)
        assert connects(release, "ceph.site.svc", 8000)
        assert connects(release, "kafka.site.svc", 9092)
        assert "60 alerts" in release.stampede("simulate", "--alerts", 60, "--seed", 44).output
        release.wait_until_stored()  # the sources reach Kafka and the functions, these the store
    finally:
        release.install(networkPolicy__egress__enabled="false")
    until(lambda: connects(release, dns, DNS_METRICS), 60, 1)
