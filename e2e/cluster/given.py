"""A cluster that is already there, by its kubeconfig. Nothing of it is brought up or taken down."""

import os
import shutil
from pathlib import Path

from e2e.cluster import build
from e2e.cluster.steps import Failed, say


class Given:
    """The cluster of a kubeconfig. Its nodes must be able to have the images."""

    name = "the cluster of STAMPEDE_E2E_KUBECONFIG"

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.ingress = os.environ.get("STAMPEDE_E2E_INGRESS", "")

    @property
    def kubectl(self) -> Path:
        """The program: this machine's, else one of the pinned modules."""
        found = shutil.which("kubectl")
        return Path(found) if found else build.kube("kubectl")

    def build(self) -> None:
        """Nothing is to be built."""

    def up(self) -> None:
        """Only look whether we know how to reach it.

        Raises
        ------
        Failed
            The address of its ingress is not told.
        """
        if not self.ingress:
            raise Failed(
                "where does the cluster's Knative ingress take requests? "
                "Set STAMPEDE_E2E_INGRESS=HOST:PORT"
            )

    def down(self, wipe: bool = False) -> None:
        """It stays as it is."""
        say(f"{self.name} is not ours to take down")

    def restart(self) -> None:
        """Its nodes are not ours.

        Raises
        ------
        Failed
            Always.
        """
        raise Failed(f"the nodes of {self.name} are not ours to restart")

    @property
    def running(self) -> bool:
        """It is taken for granted."""
        return True

    def load(self, *archives: Path) -> None:
        """It takes images from where its nodes do."""
        for each in archives:
            say(f"image {each.name}: the nodes of {self.name} have to have it")

    def status(self) -> str:
        """One line about it."""
        return f"{self.kubeconfig}, ingress at {self.ingress or 'an unknown address'}"
