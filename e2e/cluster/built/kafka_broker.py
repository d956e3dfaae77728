"""Knative's Kafka Broker: built from its Go module, and installed on a cluster beside Knative.

Its control plane has a go.mod and go.sum of its own, as KEDA has. Its manifests are a release's,
except for what `manifests.for_small_machine` changes and for the site's Kafka.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import filterfalse
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import manifests
from e2e.cluster.built import go_modules, kafka_data_plane
from e2e.cluster.built.images import build_own_module
from e2e.cluster.built.kafka_data_plane import MODULE, VERSION
from e2e.cluster.choice import Cluster
from e2e.cluster.kubectl import APPLY, Kubectl
from e2e.cluster.places import REGISTRY
from e2e.cluster.steps import step

NAMESPACE = "knative-eventing"
PROGRAMS = ("kafka-controller", "webhook-kafka")
CONFIG_MAP = "kafka-broker-config"  # what a Broker's `spec.config` names
CONFIGURATION = {
    "bootstrap.servers": "kafka.site.svc:9092",
    "default.topic.partitions": "2",
    "default.topic.replication.factor": "1",
}
WEBHOOK = "kafka-webhook-eventing"
RECEIVER, DISPATCHER = "kafka-broker-receiver", "kafka-broker-dispatcher"
_CONTROL_PLANE, _DATA_PLANE = (
    "control-plane/config/eventing-kafka-broker",
    "data-plane/config/broker",
)
_PROGRAM = re.compile(rf"ko://{re.escape(MODULE)}/control-plane/cmd/([\w-]+)")
_PART = re.compile(r"\$\{KNATIVE_KAFKA_(RECEIVER|DISPATCHER)_IMAGE\}")
_STARTUP_SECONDS = "60"  # 8 by default: a busy machine needs more to start a JVM
_PATIENT = ("--timeout=240s", "--request-timeout=250s")


def up(cluster: Cluster) -> Kubectl:
    """Build the Kafka Broker if it is missing, and install it; the cluster's kubectl."""
    cluster.load(*build())
    kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig)
    install(kubectl)
    return kubectl


def down(cluster: Cluster) -> None:
    """Remove what `up` installed, also in part, but for the definitions of kinds.

    No Broker of its class may be left: nobody would remove its topic.
    """
    kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig)
    found = [*objects(_CONTROL_PLANE), *objects(_DATA_PLANE)]
    found = [each for each in found if not _is_definition(each)]
    found.sort(key=manifests.rank, reverse=True)  # webhooks first, whose server ends too
    line = ("delete", "--ignore-not-found", "--filename", "-", *_PATIENT)
    kubectl(*line, stdin=yaml.safe_dump_all(found))


def build() -> list[Path]:
    """Build the images that are missing; the archives of all."""
    images = {f"control-plane/cmd/{program}": image(program) for program in PROGRAMS}
    return [*build_own_module(MODULE, VERSION, images), kafka_data_plane.build()]


def image(program: str) -> str:
    """Name and tag of the image of one of `PROGRAMS`."""
    return f"{REGISTRY}/knative-{program}:{VERSION}"


def install(kubectl: Kubectl) -> None:
    """Apply the manifests, and wait until all is ready but the dispatcher.

    A pod of the dispatcher that starts before the webhook never gets its Triggers. The controller
    starts and ends these pods when Triggers come and go.
    """
    control = [*objects(_CONTROL_PLANE)]
    with step("the Kafka Broker"):
        _apply(kubectl, filter(_is_definition, control))
        _apply(kubectl, filterfalse(_is_definition, control))
        _wait_for(kubectl, "kafka-controller", WEBHOOK)
        _apply(kubectl, objects(_DATA_PLANE))
        _wait_for(kubectl, RECEIVER)


def objects(folder: str) -> Iterator[dict[str, Any]]:
    """The objects of a folder of the module, as they are applied."""
    sources = go_modules.download(MODULE, VERSION)
    for file in sorted((sources / folder).rglob("*.yaml")):
        text = _PROGRAM.sub(lambda found: image(found[1]), file.read_text())
        for each in yaml.safe_load_all(text):
            if each:
                yield _changed(each)


def _apply(kubectl: Kubectl, found: Iterable[dict[str, Any]]) -> None:
    in_order = sorted(found, key=manifests.rank)
    kubectl(*APPLY, "-", stdin=yaml.safe_dump_all(in_order))


def _wait_for(kubectl: Kubectl, *deployments: str) -> None:
    names = (f"deployment/{name}" for name in deployments)
    kubectl("--namespace", NAMESPACE, "wait", "--for=condition=Available", *_PATIENT, *names)


def _is_definition(each: dict[str, Any]) -> bool:
    return each["kind"] == "CustomResourceDefinition"


def _changed(each: dict[str, Any]) -> dict[str, Any]:
    """An object as it is needed here: for a small machine, and for the site's Kafka."""
    each = manifests.for_small_machine(each)
    if each["kind"] == "ConfigMap" and each["metadata"]["name"] == CONFIG_MAP:
        each["data"] |= CONFIGURATION
    if each["kind"] in ("Deployment", "StatefulSet"):
        (container,) = each["spec"]["template"]["spec"]["containers"]
        if each["metadata"]["name"] == WEBHOOK:
            # Two of its controllers lead by one lease, so one of them would never work: Triggers or
            # pods of the dispatcher would lack their defaults. There is one pod of it.
            container["args"] = ["--disable-ha"]
        if found := _PART.fullmatch(container["image"]):
            container["image"] = kafka_data_plane.IMAGE
            container["args"] = [kafka_data_plane.main_class(found[1].lower())]
        for variable in container["env"]:
            if variable["name"] == "WAIT_STARTUP_SECONDS":
                variable["value"] = _STARTUP_SECONDS
    return each
