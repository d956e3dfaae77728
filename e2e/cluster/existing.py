"""A cluster that already exists, reached by its kubeconfig. Nothing starts or stops it."""

import os
from pathlib import Path

from e2e.cluster.built import binaries
from e2e.cluster.steps import Failed, log_progress


class ExistingCluster:
    """The cluster of a kubeconfig. Its nodes must have, or be able to pull, the images."""

    name = "the cluster of STAMPEDE_E2E_KUBECONFIG"

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.ingress = os.environ.get("STAMPEDE_E2E_INGRESS", "")

    @property
    def kubectl(self) -> Path:
        """The program kubectl."""
        return binaries.kubectl()

    def build(self) -> None:
        """Do nothing: the cluster exists."""

    def up(self, *archives: Path) -> None:
        """Check that the address of the ingress is set.

        Raises
        ------
        Failed
            It is not set.
        """
        if not self.ingress:
            raise Failed(
                "where does the cluster's Knative ingress take requests? "
                "Set STAMPEDE_E2E_INGRESS=HOST:PORT"
            )
        self.load(*archives)

    def down(self, wipe: bool = False) -> None:
        """Do nothing: the cluster is not ours."""
        log_progress(f"{self.name} is not ours to stop")

    def restart(self) -> None:
        """Refuse: the nodes are not ours.

        Raises
        ------
        Failed
            Always.
        """
        raise Failed(f"the nodes of {self.name} are not ours to restart")

    @property
    def running(self) -> bool:
        """Assumed to be true."""
        return True

    def load(self, *archives: Path) -> None:
        """Do nothing: the nodes get images from their own registry."""
        for each in archives:
            log_progress(f"image {each.name}: the nodes of {self.name} must have it")

    def status(self) -> str:
        """One line about the cluster."""
        return f"{self.kubeconfig}, ingress at {self.ingress or 'an unknown address'}"
