"""Knative's own manifests, from the Go modules that its programs are built from.

They are a release's, except for the names of images and the resources that pods request.
`CONFIGURATION` lists all changes to a release's configuration.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.built.go_modules import pinned_sources
from e2e.cluster.built.images import EVENTING, SERVING, TRAEFIK
from e2e.cluster.places import DOMAIN, MANIFESTS, ON_CONTROL_PLANE, REGISTRY, ROOT

Object = dict[str, Any]

# Files of each module. Go modules have no symlinks, so take the targets from the modules networking
# and caching. Eventing's controller does not start without the last ConfigMaps.
_FILES = {
    "serving": (
        *("config/core/*.yaml", "config/core/200-roles/*", "config/core/300-resources/*"),
        *("config/core/configmaps/*", "config/core/deployments/*", "config/core/webhooks/*"),
    ),
    "networking": ("config/*",),
    "caching": ("config/*",),
    "eventing": (
        *("config/core/*.yaml", "config/core/roles/*", "config/core/configmaps/*"),
        *("config/core/resources/*", "config/core/webhooks/*"),
        *(f"config/core/deployments/{name}" for name in ("controller.yaml", "webhook.yaml")),
        "config/core/deployments/pingsource-mt-adapter.yaml",
        *("config/channels/in-memory-channel/*.yaml", "config/channels/in-memory-channel/*/*"),
        "config/brokers/mt-channel-broker/roles/*",
        "config/brokers/mt-channel-broker/deployments/*",
        "third_party/eventing-integrations-latest/*",
    ),
}
# There is one pod of each Deployment, and one node for them.
_UNWANTED = ("HorizontalPodAutoscaler", "PodDisruptionBudget")

CONFIGURATION = {
    "config-network": {"ingress-class": "traefik.ingress.networking.knative.dev"},
    "config-domain": {DOMAIN: ""},
    "config-deployment": {
        "registries-skipping-tag-resolving": f"kind.local,ko.local,{REGISTRY}",
        "queue-sidecar-cpu-request": "5m",
        "queue-sidecar-memory-request": "16Mi",
    },
    # Short enough to see functions scale to zero, long enough that they do not between two tests.
    "config-autoscaler": {
        "stable-window": "15s",
        "scale-to-zero-grace-period": "10s",
        "scale-to-zero-pod-retention-period": "0s",
    },
}
_FIRST = ("Namespace", "CustomResourceDefinition")
_ORDER = ("ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "ConfigMap")


def write() -> tuple[Path, Path]:
    """Write two files, to be applied in this order: definitions of kinds, and all other objects."""
    name = f"knative-{SERVING.version}"
    first, rest = MANIFESTS / f"{name}-kinds.yaml", MANIFESTS / f"{name}.yaml"
    objects = [*knative(), *ingress()]
    MANIFESTS.mkdir(parents=True, exist_ok=True)
    _write(first, [each for each in objects if each["kind"] in _FIRST])
    _write(rest, sorted((each for each in objects if each["kind"] not in _FIRST), key=rank))
    return first, rest


def knative() -> Iterator[Object]:
    """Serving, Eventing, the Broker and its in-memory channel."""
    for name, patterns in _FILES.items():
        files = [
            file
            for pattern in patterns
            for file in _find(pinned_sources(f"knative.dev/{name}"), pattern)
        ]
        for file in files:
            text = re.sub(r"ko://knative\.dev/(\w+)/cmd/([\w/-]+)", _image, file.read_text())
            for each in yaml.load_all(text, Loader=_LOADER):
                if each and each["kind"] not in _UNWANTED:
                    yield for_small_machine(each)


def ingress() -> Iterator[Object]:
    """Traefik, as people install it, with the image that is built here, on the control plane."""
    text = (ROOT / "manifests" / "knative" / "traefik.yaml").read_text()
    text = text.replace(f"docker.io/library/traefik:{TRAEFIK.version}", TRAEFIK.image("traefik"))
    for each in yaml.safe_load_all(text):
        if each["kind"] == "Deployment":
            each["spec"]["template"]["spec"] |= ON_CONTROL_PLANE
        yield each


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def _find(directory: Path, pattern: str) -> list[Path]:
    found = sorted(path for path in directory.glob(pattern) if path.suffix == ".yaml")
    assert found, f"there is no {pattern} in {directory}"
    return found


def _image(found: re.Match[str]) -> str:
    source = {"serving": SERVING, "eventing": EVENTING}[found[1]]
    return source.image(found[2])


def for_small_machine(each: Object) -> Object:
    """Change an object to suit a small machine that has other work to do."""
    if each["kind"] == "ConfigMap":
        each.setdefault("data", {}).update(CONFIGURATION.get(each["metadata"]["name"], {}))
    if each["kind"] in ("Deployment", "StatefulSet"):
        pod = each["spec"]["template"]["spec"]
        pod.pop("affinity", None)
        pod |= ON_CONTROL_PLANE
        for container in pod["containers"]:
            resources = container.setdefault("resources", {})
            resources["requests"] = {"cpu": "5m", "memory": "16Mi"}
            resources.get("limits", {}).pop("cpu", None)  # most of their work is to start
            if probe := container.get("readinessProbe"):
                probe.pop("initialDelaySeconds", None)
                probe |= {"periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 30}
            # Eventing's webhook and Broker are restarted after 3 and 6 s without a response. Two
            # cores that start many pods can be busy for longer, and a restart makes them busier.
            if probe := container.get("livenessProbe"):
                probe |= {"periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6}
    return each


def rank(each: Object) -> int:
    """The order of application. Admission webhooks come last, so that they delay nothing."""
    if each["kind"].endswith("WebhookConfiguration"):
        return len(_ORDER) + 1
    return _ORDER.index(each["kind"]) if each["kind"] in _ORDER else len(_ORDER)


def _write(file: Path, objects: Iterable[Object]) -> None:
    partial = file.with_suffix(".partial")
    with partial.open("w") as out:
        yaml.dump_all(objects, out, Dumper=_DUMPER, sort_keys=False)
    partial.rename(file)
