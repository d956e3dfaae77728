"""kind: a node in a container, where a Docker daemon answers and can pull kind's node image.

Knative is the very same as on a node of our own, images and manifests.
"""

import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from e2e.cluster import build, knative
from e2e.cluster.places import CLUSTER, INGRESS_PORT, LOGS, ROOT
from e2e.cluster.steps import Failed, run, step, wait_until

NAME = "stampede"  # as e2e/kind.yaml says
_CONTAINER = f"{NAME}-control-plane"


def docker_answers() -> bool:
    """Whether there is a Docker daemon."""
    if shutil.which("docker") is None:
        return False
    try:
        asked = subprocess.run(["docker", "info"], capture_output=True, timeout=30)
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0


class Kind:
    """A kind cluster of one node."""

    name = "kind"
    kubeconfig = CLUSTER / "kind-kubeconfig"
    ingress = f"127.0.0.1:{INGRESS_PORT}"

    @property
    def kubectl(self) -> Path:
        """The program: this machine's, else one of the pinned modules."""
        found = shutil.which("kubectl")
        return Path(found) if found else build.kube("kubectl")

    @property
    def _kubectl(self) -> knative.Kubectl:
        return knative.Kubectl(self.kubectl, self.kubeconfig)

    def build(self) -> None:
        """Build kind itself, and what runs in pods."""
        _kind("version")
        build.images()

    def up(self) -> None:
        """Bring it up with Knative; nothing is done if it is."""
        self.build()
        if not self.running:
            with step("kind create cluster"):
                _kind(
                    *("create", "cluster", f"--config={ROOT / 'e2e' / 'kind.yaml'}"),
                    *(f"--kubeconfig={self.kubeconfig}", "--wait=180s"),
                )
        self.load(*build.images())
        knative.install(self._kubectl, self.ingress)

    def down(self, wipe: bool = False) -> None:
        """Delete it; what was in it is gone in any case."""
        _kind("delete", "cluster", f"--name={NAME}", f"--kubeconfig={self.kubeconfig}")
        for known in CLUSTER.glob("kind-*.json"):
            known.unlink()

    def restart(self) -> None:
        """Restart its node, as if it had lost power."""
        begin = datetime.now(UTC)
        run("docker", "restart", "--time=0", _CONTAINER, log=LOGS / "kind.log")
        late = Failed(f"kind's node is not ready again; look: {self._kubectl} get pods -A")
        wait_until(lambda: knative.forget_leaders(self._kubectl), 240, lambda: late)
        wait_until(lambda: knative.is_ready(self._kubectl, begin), 240, lambda: late)
        knative.wait(self._kubectl, self.ingress)

    @property
    def running(self) -> bool:
        """Whether it is there."""
        return NAME in _kind("get", "clusters").split()

    def load(self, *archives: Path) -> None:
        """Give it images out of `docker save` archives; those it has are not given again."""
        node = run("docker", "inspect", "--format={{.Id}}", _CONTAINER, log=LOGS / "kind.log")
        build.load(
            archives,
            CLUSTER / f"kind-{node.strip()[:12]}.json",
            lambda archive: _kind("load", "image-archive", f"--name={NAME}", archive),
        )

    def status(self) -> str:
        """One line about it."""
        return "up" if self.running else "down"


def _kind(*arguments: object) -> str:
    return run(build.tool("kind"), *arguments, log=LOGS / "kind.log")
