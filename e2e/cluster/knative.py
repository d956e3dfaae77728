"""Install Knative on a cluster, and wait until it is ready."""

import hashlib
from contextlib import suppress
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException

from e2e.cluster import manifests
from e2e.cluster.kubectl import APPLY, Kubectl
from e2e.cluster.steps import Failed, step, wait_until

NAMESPACES = ("knative-serving", "knative-eventing", "traefik")
_APPLIED = "stampede-e2e/applied"  # annotation: the digest of the manifests that were applied
_SECONDS = 240.0
_EARLIEST = datetime.min.replace(tzinfo=UTC)


def install(kubectl: Kubectl, ingress: str) -> None:
    """Apply Knative's manifests, unless they are applied; wait until all of it is ready."""
    definitions, objects = manifests.write()
    digest = hashlib.sha256(definitions.read_bytes() + objects.read_bytes()).hexdigest()[:16]
    annotations = [each["metadata"].get("annotations", {}) for each in kubectl.get("namespaces")]
    if digest in (each.get(_APPLIED) for each in annotations):
        wait(kubectl, ingress)
        return
    with step("Knative"):
        kubectl(*APPLY, definitions)
        kubectl("wait", "--for=condition=Established", "--all", "crd", "--timeout=60s")
        kubectl(*APPLY, objects)
        wait(kubectl, ingress)
        kubectl("annotate", "--overwrite", "namespace", NAMESPACES[0], f"{_APPLIED}={digest}")


def wait(kubectl: Kubectl, ingress: str) -> None:
    """Wait until all Deployments and pods are ready and the ingress answers.

    Raises
    ------
    Failed
        They are not ready in time; the message names those that are not.
    """

    def failed() -> Failed:
        missing = ", ".join(_not_ready(kubectl)) or f"an answer of the ingress at {ingress}"
        return Failed(
            f"Knative is not ready after {_SECONDS:.0f} s; it lacks {missing}.\n"
            f"Look: {kubectl} get events,pods --all-namespaces"
        )

    def ready() -> bool:
        try:
            return not _not_ready(kubectl) and _ingress_answers(ingress)
        except Failed:  # the API server is too busy to answer
            return False

    wait_until(ready, _SECONDS, failed)


def is_ready(kubectl: Kubectl, since: datetime = _EARLIEST) -> bool:
    """Whether the node has reported ready, and all containers were started, after `since`.

    After a restart the API server shows their old status until they report a new one.
    """
    try:
        nodes, pods = kubectl.get("nodes"), kubectl.get("pods")
    except Failed:
        return False
    heartbeats = [
        condition["lastHeartbeatTime"]
        for node in nodes
        for condition in node["status"].get("conditions", ())
        if condition["type"] == "Ready" and condition["status"] == "True"
    ]
    starts = [
        container["state"]["running"]["startedAt"]
        for pod in pods
        for container in pod["status"].get("containerStatuses", ())
        if "running" in container["state"]
    ]
    since = since.replace(microsecond=0)  # Kubernetes' times are whole seconds
    times = map(datetime.fromisoformat, heartbeats + starts)
    return bool(heartbeats) and all(since <= time for time in times)


def delete_leases(kubectl: Kubectl) -> bool:
    """Delete the leader leases of controllers that have just died, so that new ones take over.

    Leases expire only after a minute; until then no route follows a pod to its new address.
    Returns False if the API server does not answer yet.
    """
    try:
        for namespace in NAMESPACES:
            kubectl("delete", "leases", "--all", f"--namespace={namespace}")
    except Failed:
        return False
    return True


def _not_ready(kubectl: Kubectl) -> list[str]:
    """Deployments and pods of Knative that are not available or not ready."""
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


def _ingress_answers(ingress: str) -> bool:
    """Whether the ingress answers 404 for a function that does not exist."""
    with suppress(OSError, HTTPException):
        connection = HTTPConnection(ingress, timeout=5)
        connection.request("GET", "/", headers={"Host": "nobody.example.test"})
        return connection.getresponse().status == 404
    return False
