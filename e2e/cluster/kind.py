"""kind: each node in a container.

`Kind` uses the Docker daemon that answers, which pulls kind's own node image. `BuiltKind` needs
neither: it starts a daemon of its own, with a node image made here.

Knative's images and manifests are the same.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from e2e.cluster import knative
from e2e.cluster.built import binaries, docker, go_modules, images, kind_image
from e2e.cluster.kubectl import APPLY, Kubectl
from e2e.cluster.places import BUILT, CLUSTER, IMAGES, INGRESS_PORT, LOGS, ROOT
from e2e.cluster.steps import Failed, run, step, wait_until

NAME = "stampede"  # as e2e/kind.yaml says
USUAL_WORKERS = "2"
_CONTAINER = f"{NAME}-control-plane"
_LOG = LOGS / "kind.log"
_IMPORT = (
    *("ctr", "--namespace=k8s.io", "images", "import"),
    *("--all-platforms", "--digests", "--snapshotter=overlayfs"),
)


def docker_pulls() -> bool:
    """Whether a Docker daemon answers that has kind's node image, or can pull it."""
    if not docker.answers():
        return False
    sources = go_modules.pinned_sources(kind_image.KIND)
    text = (sources / "pkg" / "apis" / "config" / "defaults" / "image.go").read_text()
    found = re.search(r'"(kindest/node:\S+)"', text)
    assert found is not None, "kind's sources do not name its node image"
    has = subprocess.run(["docker", "image", "inspect", found[1]], capture_output=True)
    return not has.returncode or not subprocess.run(["docker", "pull", found[1]]).returncode


def config() -> dict[str, Any]:
    """`e2e/kind.yaml`, and as many workers as `WORKERS` says; two without it.

    Raises `Failed` if that is no number.
    """
    config: dict[str, Any] = yaml.safe_load((ROOT / "e2e" / "kind.yaml").read_text())
    given = os.environ.get("WORKERS") or USUAL_WORKERS
    if not (given.isascii() and given.isdecimal()):
        raise Failed(f"WORKERS={given}: it must be a number; 0 makes a cluster of one node")
    config["nodes"] += [{"role": "worker"} for _ in range(int(given))]
    return config


class Kind:
    """A kind cluster: a control plane, and as many workers as `WORKERS` says."""

    name = "kind"
    kubeconfig = CLUSTER / "kubeconfig"
    ingress = f"127.0.0.1:{INGRESS_PORT}"
    _env: Mapping[str, str] = MappingProxyType({})

    @property
    def kubectl(self) -> Path:
        """The program kubectl."""
        return binaries.kubectl()

    @property
    def _kubectl(self) -> Kubectl:
        return Kubectl(self.kubectl, self.kubeconfig)

    def build(self) -> None:
        """Build kind itself, and the images that run in pods."""
        binaries.tool("kind")
        images.build_all()

    def up(self, *archives: Path) -> None:
        """Start the cluster with Knative, unless it is up, and load images from these archives.

        Raises
        ------
        Failed
            A program cannot be built or started, or the cluster that is up has other workers.
        """
        self.build()
        if not self.running:
            with step("kind create cluster"):
                self._create(config())
        elif os.environ.get("WORKERS") and len(self.nodes) != len(config()["nodes"]):
            raise Failed(
                f"WORKERS={os.environ['WORKERS']}, but the cluster that is up has "
                f"{len(self.nodes) - 1}: make e2e-down, then try again"
            )
        self.load(*images.build_all())
        with ThreadPoolExecutor(1) as pool:
            loading = pool.submit(self.load, *archives)
            knative.install(self._kubectl, self.ingress)
            loading.result()
        wait_until(lambda: not self._without_services(), 60, self._no_services)

    def down(self, wipe: bool = False) -> None:
        """Delete the cluster, always with its state."""
        self._kind("delete", "cluster", f"--name={NAME}", f"--kubeconfig={self.kubeconfig}")
        for loaded_file in CLUSTER.glob("kind-*.json"):
            loaded_file.unlink()

    def restart(self) -> None:
        """Restart all nodes as after a power failure."""
        begin = datetime.now(UTC)
        self.docker("restart", "--time=0", *self.nodes)
        late = Failed(f"kind's nodes are not ready again; look: {self._kubectl} get pods -A")
        wait_until(lambda: knative.delete_leases(self._kubectl), 240, lambda: late)
        wait_until(lambda: knative.is_ready(self._kubectl, begin), 240, lambda: late)
        knative.wait(self._kubectl, self.ingress)

    @property
    def running(self) -> bool:
        """Whether the cluster exists."""
        return NAME in self._kind("get", "clusters").split()

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes, which are those of their containers; the control plane is first."""
        return sorted(self._kind("get", "nodes", f"--name={NAME}").split())

    def docker(self, *arguments: object, log: Path = _LOG) -> str:
        """Run a command of the Docker that runs the nodes; its output."""
        return run("docker", *arguments, log=log, env=self._env)

    def load(self, *archives: Path) -> None:
        """Load images from archives as ``docker save`` writes them, except those it has.

        Workers get those of pods that can run there.
        """
        for node in self.nodes:
            container = self.docker("inspect", "--format={{.Id}}", node)
            images.load_missing(
                archives if node == _CONTAINER else filter(images.runs_on_workers, archives),
                CLUSTER / f"kind-{container.strip()[:12]}.json",
                lambda archive, node=node: self._load_one(archive, node),
            )

    def status(self) -> str:
        """One line about the cluster's state."""
        return "up" if self.running else "down"

    def _without_services(self) -> list[str]:
        """The nodes that do not reach the first Service, which is the API server's."""
        (address,) = (
            service["spec"]["clusterIP"]
            for service in self._kubectl.get("services")
            if service["metadata"]["name"] == "kubernetes"
        )
        ask = ("curl", "--silent", "--insecure", "--max-time", 5, f"https://{address}/version")
        shell = f"{' '.join(map(str, ask))} || true"
        return [node for node in self.nodes if not self.docker("exec", node, "sh", "-c", shell)]

    def _no_services(self) -> Failed:
        nodes = ", ".join(self._without_services())
        return Failed(
            f"{nodes}: no Service is reached from there.\n"
            f"Look: {self._kubectl} logs --namespace kube-system --selector k8s-app=kube-proxy"
        )

    def _create(self, config: dict[str, Any]) -> None:
        """Create the nodes. Images are loaded while they get ready, and Knative waits for them."""
        self._create_from(yaml.safe_dump(config))

    def _create_from(self, config: str) -> None:
        file = CLUSTER / "kind.yaml"
        file.write_text(config)
        self._kind("create", "cluster", f"--config={file}", f"--kubeconfig={self.kubeconfig}")

    def _load_one(self, archive: Path, node: str) -> None:
        line = ("load", "image-archive", f"--name={NAME}", f"--nodes={node}", archive)
        self._kind(*line, log=_load_log(archive, node))

    def _kind(self, *arguments: object, log: Path = _LOG) -> str:
        return run(binaries.tool("kind"), *arguments, log=log, env=self._env)


class BuiltKind(Kind):
    """A kind cluster with a Docker daemon and a node image of our own. It needs root."""

    name = "kind with a node image built here"
    ingress = f"{docker.LINK.node}:{INGRESS_PORT}"
    _env = MappingProxyType(docker.ENV)

    def build(self) -> None:
        """Build the node image too."""
        if os.geteuid() != 0:
            raise Failed(docker.advice())
        docker.install()
        super().build()
        kind_image.build()

    def up(self, *archives: Path) -> None:
        """Start Docker and the cluster with Knative, unless they are up; load these images."""
        self.build()
        must_start = not docker.running()
        try:
            docker.start()
            if must_start and self.running:  # the machine, or Docker, was stopped without `down`
                self.restart()
            super().up(*archives)
        except KeyboardInterrupt:
            if must_start:
                self.down()
            raise

    def down(self, wipe: bool = False) -> None:
        """Delete the cluster and stop Docker. With `wipe`, delete logs and unfinished builds."""
        if docker.running():
            super().down()
        docker.stop()
        if wipe:
            shutil.rmtree(LOGS, ignore_errors=True)
            images.remove_unfinished()

    @property
    def running(self) -> bool:
        """Whether the cluster exists and Docker runs."""
        return docker.running() and super().running

    def _create(self, config: dict[str, Any]) -> None:
        if not self.docker("images", "--quiet", kind_image.name()).strip():
            self.docker("image", "prune", "--all", "--force")  # those of earlier sources
            self.docker("load", f"--input={kind_image.build()}")
        self._create_from(kind_image.cluster_config(config, docker.LINK.node))
        self._kubectl(*APPLY, BUILT / "kind_node" / "kube-router.yaml")

    def _load_one(self, archive: Path, node: str) -> None:
        """As kind does, but containerd reads a file that the node sees, past Docker."""
        if archive.is_relative_to(IMAGES):
            file = kind_image.ARCHIVES / archive.relative_to(IMAGES)
            self.docker("exec", node, *_IMPORT, file, log=_load_log(archive, node))
        else:
            super()._load_one(archive, node)


def _load_log(archive: Path, node: str) -> Path:
    return LOGS / f"load-{archive.stem}-{node}.log"
