"""Knative on a cluster: applied, and waited for."""

import hashlib
import json
from contextlib import suppress
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from e2e.cluster import manifests
from e2e.cluster.places import LOGS
from e2e.cluster.steps import Failed, run, step, wait_until

NAMESPACES = ("knative-serving", "knative-eventing", "traefik")
_MARK = "stampede-e2e/applied"
_SECONDS = 240.0
_EVER = datetime.min.replace(tzinfo=UTC)


class Kubectl:
    """kubectl, on one cluster."""

    def __init__(self, program: Path, kubeconfig: Path) -> None:
        self._program, self._kubeconfig = program, kubeconfig

    def __str__(self) -> str:
        return f"{self._program} --kubeconfig={self._kubeconfig}"

    def __call__(self, *arguments: object, stdin: str = "") -> str:
        """What it says.

        Raises
        ------
        Failed
            Its status is not 0.
        """
        options = (f"--kubeconfig={self._kubeconfig}", "--request-timeout=60s")
        line = (self._program, *options, *arguments)
        return run(*line, log=LOGS / "kubectl.log", stdin=stdin.encode())

    def get(self, kinds: str) -> list[dict[str, Any]]:
        """All objects of some kinds."""
        return json.loads(self("get", kinds, "--all-namespaces", "--output=json"))["items"]


def install(kubectl: Kubectl, ingress: str) -> None:
    """Apply Knative's manifests, once; wait until all of it works."""
    kinds, rest = manifests.write()
    digest = hashlib.sha256(kinds.read_bytes() + rest.read_bytes()).hexdigest()[:16]
    marks = [each["metadata"].get("annotations", {}) for each in kubectl.get("namespaces")]
    if digest in (mark.get(_MARK) for mark in marks):
        wait(kubectl, ingress)
        return
    apply = ("apply", "--server-side", "--force-conflicts", "--filename")
    with step("Knative"):
        kubectl(*apply, kinds)
        kubectl("wait", "--for=condition=Established", "--all", "crd", "--timeout=60s")
        kubectl(*apply, rest)
        wait(kubectl, ingress)
        kubectl("annotate", "--overwrite", "namespace", NAMESPACES[0], f"{_MARK}={digest}")


def wait(kubectl: Kubectl, ingress: str) -> None:
    """Wait until all of its pods are ready, and its ingress answers.

    Raises
    ------
    Failed
        They are not in time; with those that are not.
    """

    def failed() -> Failed:
        lacking = ", ".join(_lacking(kubectl)) or f"an answer of the ingress at {ingress}"
        return Failed(
            f"Knative is not ready after {_SECONDS:.0f} s; it lacks {lacking}.\n"
            f"Look: {kubectl} get events,pods --all-namespaces"
        )

    def ready() -> bool:
        try:
            return not _lacking(kubectl) and _answers(ingress)
        except Failed:  # the API server is too busy to be asked
            return False

    wait_until(ready, _SECONDS, failed)


def is_ready(kubectl: Kubectl, since: datetime = _EVER) -> bool:
    """Whether the node, and all that runs on it, has said so since then.

    What they said before a restart stands until they say something else.
    """
    try:
        nodes, pods = kubectl.get("nodes"), kubectl.get("pods")
    except Failed:
        return False
    heard = [
        condition["lastHeartbeatTime"]
        for node in nodes
        for condition in node["status"].get("conditions", ())
        if condition["type"] == "Ready" and condition["status"] == "True"
    ]
    begun = [
        container["state"]["running"]["startedAt"]
        for pod in pods
        for container in pod["status"].get("containerStatuses", ())
        if "running" in container["state"]
    ]
    since = since.replace(microsecond=0)  # they count whole seconds
    return bool(heard) and all(map(since.__le__, map(datetime.fromisoformat, heard + begun)))


def forget_leaders(kubectl: Kubectl) -> bool:
    """Where all of Knative has just died: who comes next need not wait until that is believed.

    It would for a minute, and until then no route follows a pod to its new address. False if the
    API server does not answer yet.
    """
    try:
        for namespace in NAMESPACES:
            kubectl("delete", "leases", "--all", f"--namespace={namespace}")
    except Failed:
        return False
    return True


def _lacking(kubectl: Kubectl) -> list[str]:
    """What there is not enough of, or is not ready."""
    objects = [
        each
        for each in kubectl.get("deployments,pods")
        if each["metadata"]["namespace"] in NAMESPACES
        and "deletionTimestamp" not in each["metadata"]
    ]
    return [
        f"{each['kind']} {each['metadata']['namespace']}/{each['metadata']['name']}"
        for each in objects
        if not any(
            condition["type"] in ("Available", "Ready") and condition["status"] == "True"
            for condition in each["status"].get("conditions", ())
        )
    ]


def _answers(ingress: str) -> bool:
    """Whether it says of a function that there is not, that there is not."""
    with suppress(OSError, HTTPException):
        connection = HTTPConnection(ingress, timeout=5)
        connection.request("GET", "/", headers={"Host": "nobody.example.test"})
        return connection.getresponse().status == 404
    return False
