"""Which cluster it is."""

import os
from pathlib import Path
from typing import Protocol

from e2e.cluster import kind
from e2e.cluster.given import Given
from e2e.cluster.node import Node


class Cluster(Protocol):
    """What can be asked of a cluster, whichever it is."""

    name: str
    kubeconfig: Path
    ingress: str  # HOST:PORT at which functions answer, told apart by the Host header

    @property
    def kubectl(self) -> Path:
        """The program."""

    def build(self) -> None:
        """Build what it is made of."""

    def up(self) -> None:
        """Bring it up with Knative; nothing is done if it is."""

    def down(self, wipe: bool = False) -> None:
        """Take it down; with `wipe`, what was in it goes too."""

    def restart(self) -> None:
        """Restart its node, as if it had lost power."""

    @property
    def running(self) -> bool:
        """Whether it is up."""

    def load(self, *archives: Path) -> None:
        """Give it images out of `docker save` archives."""

    def status(self) -> str:
        """One line about it."""


def choose() -> Cluster:
    """The cluster that the environment says."""
    if given := os.environ.get("STAMPEDE_E2E_KUBECONFIG"):
        return Given(Path(given))
    return kind.Kind() if kind.docker_answers() else Node()
