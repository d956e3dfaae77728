"""kind's node image, built where it cannot be pulled: Debian packages and pinned Go modules.

``kind_node/Dockerfile`` has the steps. tools/image runs them, so that it needs no Docker.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.built import binaries, go_modules, images
from e2e.cluster.places import BUILT, IMAGES, INGRESS_PORT, REGISTRY, ROOT
from e2e.cluster.steps import Failed, step

_FILES = BUILT / "kind_node"
KIND = "sigs.k8s.io/kind"
KUBE_ROUTER = "github.com/cloudnativelabs/kube-router/v2"
ARCHIVES = Path("/images")  # where the node sees the directory `IMAGES`


def name() -> str:
    """Name and tag of the image. The tag has a digest of all that the image is built from."""
    kubernetes = go_modules.pinned_version(binaries.KUBERNETES)
    parts = [go_modules.pinned_version(each) for each in (KIND, binaries.COREDNS, KUBE_ROUTER)]
    parts += [str(path.relative_to(_FILES)) for path in _inputs()]
    digest = hashlib.sha256("\0".join(parts).encode())
    for path in _inputs():
        digest.update(path.read_bytes())
    return f"{REGISTRY}/kind-node:{kubernetes}-{digest.hexdigest()[:12]}"


def build() -> Path:
    """Build the image, unless it exists; its archive.

    Raises
    ------
    Failed
        tools/image cannot build it.
    """
    archive = images.archive_path(name())
    if not archive.exists():
        _build_coredns()
        with step("kind's node image"), images.scratch_directory() as context:
            _write_context(context)
            _run_tool(context, "kubernetes", context / "images" / "kubernetes.tar")
            _run_tool(context, "node", archive)
    return archive


def cluster_config(config: dict[str, Any], address: str) -> str:
    """A kind cluster's configuration, changed for this image, and to listen at an address."""
    text = (_FILES / "cluster.yaml").read_text()
    text = text.replace("COREDNS", go_modules.pinned_version(binaries.COREDNS))
    config |= yaml.safe_load(
        text.replace("KUBERNETES", go_modules.pinned_version(binaries.KUBERNETES))
    )
    config["networking"]["apiServerAddress"] = address
    config["nodes"][0]["extraPortMappings"] = [
        {"containerPort": INGRESS_PORT, "hostPort": INGRESS_PORT, "listenAddress": address}
    ]
    for node in config["nodes"]:
        node["image"] = name()
        node["extraMounts"] = [
            {"hostPath": str(IMAGES), "containerPath": str(ARCHIVES), "readOnly": True}
        ]
    return yaml.safe_dump(config)


def _inputs() -> list[Path]:
    files = [*(_FILES / "files").rglob("*"), _FILES / "Dockerfile"]
    return sorted(path for path in files if path.is_file())


def _coredns() -> str:
    return f"{REGISTRY}/coredns:{go_modules.pinned_version(binaries.COREDNS)}"


def _build_coredns() -> None:
    if not images.archive_path(_coredns()).exists():
        with step("the image of CoreDNS"), images.scratch_directory() as scratch:
            go_modules.build(["./coredns"], scratch / "coredns")
            # As root: kubeadm's manifest lets it use port 53, but only a root user keeps that.
            images.write_program_image(scratch / "coredns", _coredns(), user="0:0")


def _write_context(context: Path) -> None:
    """Write the directory from which the Dockerfile copies."""
    base = go_modules.pinned_sources(KIND) / "images" / "base" / "files"
    go_modules.copy_sources(base, context / "base")
    shutil.copytree(_FILES / "files", context / "files")
    shutil.copy(_FILES / "Dockerfile", context)
    for program in (binaries.kube("kube"), binaries.kubeadm(), binaries.tool("kube-router")):
        os.link(program, context / program.name.partition("-v")[0])
    (context / "version").write_text(go_modules.pinned_version(binaries.KUBERNETES))
    (context / "images").mkdir()
    for image in (_coredns(), images.PAUSE_IMAGE):
        archive = images.archive_path(image)
        os.link(archive, context / "images" / archive.name)


def _run_tool(context: Path, stage: str, archive: Path) -> None:
    tag = name() if stage == "node" else name().replace("kind-node", stage).rpartition("-")[0]
    command = (ROOT / "tools" / "image", archive, "--context", context, "--target", stage)
    if subprocess.run([*command, "--tag", tag, "--builder", "chroot"]).returncode:
        raise Failed(f"tools/image cannot build {tag}")
