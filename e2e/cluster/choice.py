"""Choose the cluster."""

import os
from pathlib import Path
from typing import Protocol

from e2e.cluster.existing import ExistingCluster
from e2e.cluster.kind import BuiltKind, Kind, docker_pulls


class Cluster(Protocol):
    """A cluster: an existing one, or kind."""

    name: str
    kubeconfig: Path
    ingress: str  # HOST:PORT at which functions answer; the Host header tells them apart

    @property
    def kubectl(self) -> Path:
        """The program kubectl."""

    def build(self) -> None:
        """Build all programs and images that the cluster needs."""

    def up(self, *archives: Path) -> None:
        """Start the cluster with Knative, unless it is up, and load these images."""

    def down(self, wipe: bool = False) -> None:
        """Stop the cluster; with `wipe`, delete its state too."""

    def restart(self) -> None:
        """Restart the node as after a power failure."""

    @property
    def running(self) -> bool:
        """Whether the cluster is up."""

    def load(self, *archives: Path) -> None:
        """Load images from archives as ``docker save`` writes them."""

    def status(self) -> str:
        """One line about the cluster's state."""


def choose() -> Cluster:
    """The cluster that the environment selects."""
    if kubeconfig := os.environ.get("STAMPEDE_E2E_KUBECONFIG"):
        return ExistingCluster(Path(kubeconfig))
    return Kind() if docker_pulls() else BuiltKind()
