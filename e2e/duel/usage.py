"""What pods cost: seconds that they exist, and CPU seconds by container."""

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Self

from e2e.cluster.built import keda
from e2e.duel.contestants import FUNCTIONS
from e2e.on_cluster.kubernetes import Cluster

EVERY = 1.0  # seconds between two looks
_CPU = re.compile(
    r'^container_cpu_usage_seconds_total\{container="([^"]+)",namespace="([^"]+)",pod="([^"]+)"\} '
    r"(\S+)",
    re.MULTILINE,
)
Container = tuple[str, str, str]
"""Namespace, pod and container."""


class Usage:
    """Looks at the node's kubelet while it is entered.

    A container that ends keeps the last figure that was seen, so up to some seconds of it are lost.

    Attributes
    ----------
    pod_seconds
        How long pods existed, by the name that `group` gives them.
    most
        Most pods at once, by group.
    """

    def __init__(self, cluster: Cluster, group: Callable[[str, str], str]) -> None:
        self._cluster, self._group = cluster, group
        self._first: dict[Container, float] = {}
        self._last: dict[Container, float] = {}
        self.pod_seconds: dict[str, float] = defaultdict(float)
        self.most: dict[str, int] = defaultdict(int)
        self._ended = threading.Event()
        (node,) = cluster.get("nodes", "default")
        self._path = f"/api/v1/nodes/{node['metadata']['name']}/proxy/metrics/resource"

    def __enter__(self) -> Self:
        self._look(0.0, new_is_old=True)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def cpu(self) -> dict[tuple[str, str], float]:
        """CPU seconds by group of pods and container."""
        sums: dict[tuple[str, str], float] = defaultdict(float)
        for (namespace, pod, container), last in self._last.items():
            if group := self._group(namespace, pod):
                sums[group, container] += last - self._first[namespace, pod, container]
        return dict(sums)

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._ended.wait(EVERY):
            now = time.monotonic()
            self._look(now - before)
            before = now

    def _look(self, seconds: float, new_is_old: bool = False) -> None:
        shown = self._cluster.kubectl("get", "--raw", self._path, check=False)
        if shown.status:
            return
        pods = set()
        for container, namespace, pod, value in _CPU.findall(shown.output):
            key = namespace, pod, container
            self._last[key] = float(value)
            # A container that began after the first look began with 0.
            self._first.setdefault(key, float(value) if new_is_old else 0.0)
            pods.add((namespace, pod))
        counts: dict[str, int] = defaultdict(int)
        for namespace, pod in pods:
            if group := self._group(namespace, pod):
                counts[group] += 1
        for group, count in counts.items():
            self.pod_seconds[group] += seconds * count
            self.most[group] = max(self.most[group], count)


def group_of(namespace: str, pod: str) -> str:
    """The group of a pod: what its CPU is counted as; empty if it takes no part."""
    if namespace in ("knative-serving", "traefik"):
        return "Knative" if "webhook" not in pod else ""
    if namespace == keda.NAMESPACE:
        return "KEDA"
    if namespace == "stampede" and any(f"-{name}-" in pod for name in FUNCTIONS):
        return "sources" if "-alerts-" in pod else "functions"
    return ""
