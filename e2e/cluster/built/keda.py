"""KEDA with the scaler of Kafka only, built from its module and installed on a cluster.

KEDA has seventy scalers. Go would compile elasticsearch's client and the clouds' SDKs for nothing.
KEDA is not in ``programs``: its dependencies have versions of their own, which its own go.mod and
go.sum pin.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from e2e.cluster.built import go_modules
from e2e.cluster.built.images import build_own_module
from e2e.cluster.choice import Cluster
from e2e.cluster.kubectl import APPLY, Kubectl
from e2e.cluster.places import REGISTRY
from e2e.cluster.steps import step

MODULE, VERSION = "github.com/kedacore/keda/v2", "v2.21.0"
NAMESPACE = "keda"
API = "v1beta1.external.metrics.k8s.io"
_FIRST = ("CustomResourceDefinition", "Namespace")
_SCALERS = ("scaler.go", "kafka_scaler.go")
_OTHER_CASES = re.compile(r'(\tcase "(?!kafka")[^\n]*:\n)((?!\tcase|\tdefault)[^\n]*\n)+')
_WAIT = ("wait", "--for=condition=Available", "--timeout=240s")


class Program(NamedTuple):
    """A program of KEDA, and the image that KEDA's manifests name."""

    name: str
    published: str

    @property
    def image(self) -> str:
        """The image that is built here."""
        return f"{REGISTRY}/keda-{self.name}:{VERSION}"


PROGRAMS = (
    Program("operator", "ghcr.io/kedacore/keda"),
    Program("adapter", "ghcr.io/kedacore/keda-metrics-apiserver"),
)
WEBHOOKS = "ghcr.io/kedacore/keda-admission-webhooks"  # what KEDA's own installation also has


def up(cluster: Cluster) -> Kubectl:
    """Build KEDA if it is missing, and install it; the cluster's kubectl."""
    cluster.load(*build())
    kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig)
    install(kubectl)
    return kubectl


def down(cluster: Cluster) -> None:
    """Remove what `up` installed, also in part, but for cluster-wide definitions and roles."""
    kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig)
    # First: no namespace of the cluster can be deleted while an APIService has no server.
    kubectl("delete", "apiservice", API, "--ignore-not-found")
    gone = ("--ignore-not-found", "--timeout=120s")
    kubectl("delete", "namespace", NAMESPACE, *gone, "--request-timeout=150s")


def build() -> list[Path]:
    """Build the images that are missing; the archives of all."""
    images = {f"cmd/{program.name}": program.image for program in PROGRAMS}
    return build_own_module(MODULE, VERSION, images, leave_out_scalers)


def leave_out_scalers(sources: Path) -> None:
    """Remove all scalers but Kafka's from KEDA's sources."""
    for file in (sources / "pkg" / "scalers").glob("*.go"):
        if file.name not in _SCALERS:
            file.unlink()
    builder = sources / "pkg" / "scaling" / "scalers_builder.go"
    builder.write_text(_OTHER_CASES.sub("", builder.read_text()))


def install(kubectl: Kubectl) -> None:
    """Apply KEDA's own manifests, without its admission webhooks; wait until it is ready."""
    config = go_modules.download(MODULE, VERSION) / "config" / "default"
    objects = [*map(_changed, filter(_is_needed, yaml.safe_load_all(kubectl("kustomize", config))))]
    with step("KEDA"):
        for first in (True, False):  # what the others need
            chosen = [each for each in objects if (each["kind"] in _FIRST) == first]
            kubectl(*APPLY, "-", stdin=yaml.safe_dump_all(chosen))
        kubectl("--namespace", NAMESPACE, *_WAIT, "deployments", "--all")
        kubectl(*_WAIT, "apiservice", API)


def _is_needed(each: dict[str, Any]) -> bool:
    webhooks = each["kind"].endswith("WebhookConfiguration")
    return not webhooks and "admission" not in each["metadata"]["name"]


def _changed(each: dict[str, Any]) -> dict[str, Any]:
    """An object as it is needed here: with the images that were built, and no webhooks."""
    if each["kind"] != "Deployment":
        return each
    (container,) = each["spec"]["template"]["spec"]["containers"]
    (program,) = [p for p in PROGRAMS if container["image"].rpartition(":")[0] == p.published]
    container |= {"image": program.image, "imagePullPolicy": "Never"}
    arguments = container["args"]
    del container["command"]
    if program.name == "operator":
        arguments.append("--enable-webhook-patching=false")
    container["resources"] = {"requests": {"cpu": "10m", "memory": "64Mi"}}
    return each
