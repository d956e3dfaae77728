"""kind: a node in a container, where a Docker daemon answers and can pull kind's node image.

Knative's images and manifests are the same as on a node of our own.
"""

import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from e2e.cluster import binaries, images, knative
from e2e.cluster.kubectl import Kubectl
from e2e.cluster.places import CLUSTER, INGRESS_PORT, LOGS, ROOT
from e2e.cluster.steps import Failed, run, step, wait_until

NAME = "stampede"  # as e2e/kind.yaml says
_CONTAINER = f"{NAME}-control-plane"


def docker_answers() -> bool:
    """Whether a Docker daemon answers."""
    if shutil.which("docker") is None:
        return False
    try:
        done = subprocess.run(["docker", "info"], capture_output=True, timeout=30)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


class Kind:
    """A kind cluster of one node."""

    name = "kind"
    kubeconfig = CLUSTER / "kind-kubeconfig"
    ingress = f"127.0.0.1:{INGRESS_PORT}"

    @property
    def kubectl(self) -> Path:
        """The program kubectl."""
        return binaries.kubectl()

    @property
    def _kubectl(self) -> Kubectl:
        return Kubectl(self.kubectl, self.kubeconfig)

    def build(self) -> None:
        """Build kind itself, and the images that run in pods."""
        _kind("version")
        images.build_all()

    def up(self) -> None:
        """Start the cluster with Knative, unless it is up."""
        self.build()
        if not self.running:
            with step("kind create cluster"):
                _kind(
                    *("create", "cluster", f"--config={ROOT / 'e2e' / 'kind.yaml'}"),
                    *(f"--kubeconfig={self.kubeconfig}", "--wait=180s"),
                )
        self.load(*images.build_all())
        knative.install(self._kubectl, self.ingress)

    def down(self, wipe: bool = False) -> None:
        """Delete the cluster, always with its state."""
        _kind("delete", "cluster", f"--name={NAME}", f"--kubeconfig={self.kubeconfig}")
        for loaded_file in CLUSTER.glob("kind-*.json"):
            loaded_file.unlink()

    def restart(self) -> None:
        """Restart the node as after a power failure."""
        begin = datetime.now(UTC)
        run("docker", "restart", "--time=0", _CONTAINER, log=LOGS / "kind.log")
        late = Failed(f"kind's node is not ready again; look: {self._kubectl} get pods -A")
        wait_until(lambda: knative.delete_leases(self._kubectl), 240, lambda: late)
        wait_until(lambda: knative.is_ready(self._kubectl, begin), 240, lambda: late)
        knative.wait(self._kubectl, self.ingress)

    @property
    def running(self) -> bool:
        """Whether the cluster exists."""
        return NAME in _kind("get", "clusters").split()

    def load(self, *archives: Path) -> None:
        """Load images from archives as ``docker save`` writes them, except those it has."""
        node = run("docker", "inspect", "--format={{.Id}}", _CONTAINER, log=LOGS / "kind.log")
        images.load_missing(
            archives,
            CLUSTER / f"kind-{node.strip()[:12]}.json",
            lambda archive: _kind("load", "image-archive", f"--name={NAME}", archive),
        )

    def status(self) -> str:
        """One line about the cluster's state."""
        return "up" if self.running else "down"


def _kind(*arguments: object) -> str:
    return run(binaries.tool("kind"), *arguments, log=LOGS / "kind.log")
