"""Workers of the cluster that the tests start: drained, stopped dead, cut off."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from e2e.cluster.kind import Kind
from e2e.commands import until
from e2e.on_cluster.kubernetes import Cluster
from e2e.on_cluster.release import Release

READY_SECONDS = 180
WORKER = "!node-role.kubernetes.io/control-plane"
# What arrives at a node, and what its processes and pods send, but not what stays on the node.
# kube-router has its rules in tables that come later.
_CUT = (
    ("raw", "PREROUTING", "--in-interface"),
    ("raw", "OUTPUT", "--out-interface"),
    ("mangle", "POSTROUTING", "--out-interface"),
)


class Worker:
    """A node that has pods of the chart only."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self.name = cluster, name

    @contextmanager
    def cordoned(self) -> Iterator[None]:
        """It takes no new pods."""
        self._cluster.kubectl("cordon", self.name)
        try:
            yield
        finally:
            self._cluster.kubectl("uncordon", self.name)

    @contextmanager
    def drained(self) -> Iterator[None]:
        """Evict its pods as an operator does before maintenance; it takes pods again at the end."""
        with self.cordoned():
            self._cluster.kubectl(
                *("drain", self.name, "--ignore-daemonsets", "--delete-emptydir-data"),
                *("--force", "--timeout=300s"),
                seconds=320,
            )
            yield

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop it as a power failure does; it starts again at the end."""
        self._kind.docker("kill", self.name)
        try:
            yield
        finally:
            self._kind.docker("start", self.name)
            self._wait_until_ready()

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Drop all packets from and to other nodes; its pods run on. They arrive at the end."""
        self._change_rules("--insert")
        try:
            yield
        finally:
            self._change_rules("--delete")
            self._wait_until_ready()

    def _change_rules(self, action: str) -> None:
        for table, chain, interface in _CUT:
            self._kind.docker(
                *("exec", self.name, "iptables", "--wait", "--table", table, action, chain),
                *(interface, "eth0", "--jump", "DROP"),
            )

    def _wait_until_ready(self) -> None:
        until(lambda: self.name in _ready_workers(self._cluster), READY_SECONDS, 1)

    @property
    def _kind(self) -> Kind:
        assert isinstance(self._cluster.backend, Kind)
        return self._cluster.backend


def workers(cluster: Cluster) -> list[Worker]:
    """The workers; none of an existing cluster, whose nodes are not ours to stop."""
    if not isinstance(cluster.backend, Kind):
        return []
    return [Worker(cluster, name) for name in sorted(_ready_workers(cluster))]


def nodes_of(release: Release, selector: str) -> set[str]:
    """Names of the nodes on which pods are ready."""
    return {pod["spec"]["nodeName"] for pod in release.live_pods(selector) if _is_ready(pod)}


def _ready_workers(cluster: Cluster) -> set[str]:
    nodes = cluster.get("nodes", "default", "--selector", WORKER)
    return {node["metadata"]["name"] for node in nodes if _is_ready(node)}


def _is_ready(each: dict[str, Any]) -> bool:
    """Whether a pod or a node is ready; neither says of which generation its status is."""
    conditions = each["status"].get("conditions", ())
    return ("Ready", "True") in ((found["type"], found["status"]) for found in conditions)
