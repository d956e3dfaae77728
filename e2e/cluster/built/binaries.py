"""Programs: Kubernetes with etcd, kubeadm, helm, kind, kube-router and crane.

Each file has its version in its name. A program that exists is not built again.
"""

import shutil
from pathlib import Path

from e2e.cluster.built import go_modules
from e2e.cluster.places import PROGRAMS
from e2e.cluster.steps import step

KUBE_NAMES = (
    *("etcd", "kubectl", "kubelet", "kube-apiserver", "kube-controller-manager"),
    *("kube-proxy", "kube-scheduler"),
)
# Command-line tools by name, with the Go package of each.
TOOLS = {
    "crane": "github.com/google/go-containerregistry/cmd/crane",
    "helm": "helm.sh/helm/v3/cmd/helm",
    "kind": "sigs.k8s.io/kind",
    "kube-router": "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",
}
COREDNS = "github.com/coredns/coredns"
KUBERNETES = "k8s.io/kubernetes"


def kube(name: str) -> Path:
    """One of Kubernetes' programs or etcd: links to one binary that acts by its name."""
    version = go_modules.pinned_version(KUBERNETES)
    directory = PROGRAMS / f"kube-{version}"
    if not (directory / "kube").exists():
        with step(f"Kubernetes {version} with etcd, as one program"):
            go_modules.build(["./kube"], directory / "kube", _version_variables(version))
    for each in KUBE_NAMES:
        if not (directory / each).is_symlink():
            (directory / each).symlink_to("kube")
    return directory / name


def kubeadm() -> Path:
    """The program kubeadm, which sets up kind's nodes."""
    version = go_modules.pinned_version(KUBERNETES)
    program = PROGRAMS / f"kubeadm-{version}"
    if not program.exists():
        with step(f"kubeadm {version}"):
            go_modules.build([f"{KUBERNETES}/cmd/kubeadm"], program, _version_variables(version))
    return program


def kubectl() -> Path:
    """The kubectl installed on this machine, or the pinned one."""
    installed = shutil.which("kubectl")
    return Path(installed) if installed else kube("kubectl")


def tool(name: str) -> Path:
    """The program helm, kind, kube-router, crane or one of Kubernetes'."""
    if name in KUBE_NAMES:
        return kube(name)
    package = TOOLS[name]
    version = go_modules.pinned_version(package.partition("/cmd/")[0])
    program = PROGRAMS / f"{name}-{version}"
    if not program.exists():
        helm_version = {"helm.sh/helm/v3/internal/version.version": version}
        with step(f"{name} {version}"):
            go_modules.build([package], program, helm_version if name == "helm" else {})
    return program


def _version_variables(version: str) -> dict[str, str]:
    """The variables by which Kubernetes' programs know their version."""
    parts = {"gitVersion": version, "gitMajor": "1", "gitMinor": version.split(".")[1]}
    return {
        f"{package}.{key}": value
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for key, value in parts.items()
    }
