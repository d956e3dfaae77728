"""Which functions have no pod at the moment: a request would start one."""

from collections import defaultdict
from collections.abc import Mapping
from urllib.parse import urlsplit

from stampede.doctor.finding import NotExamined
from stampede.doctor.kubernetes import OWN, Document, Forbidden, Kubernetes

SERVICE = "serving.knative.dev/service"
KIND = "serving.knative.dev/v1/revisions"


def asleep(urls: Mapping[str, str]) -> frozenset[str]:
    """The names of the functions that Knative has scaled to zero.

    None elsewhere than in a pod that may list the release's Revisions: then it is not known, and
    a function counts as awake. One that should have pods and has none is awake too.
    """
    group, _, plural = KIND.rpartition("/")
    try:
        cluster = Kubernetes()
        found = cluster.get(f"/apis/{group}/namespaces/{cluster.namespace}/{plural}{OWN}")
    except (NotExamined, Forbidden):
        return frozenset()
    pods: dict[str, int] = defaultdict(int)
    for revision in (found or {}).get("items", []):
        pods[revision["metadata"]["labels"].get(SERVICE, "")] += _pods(revision)
    services = {
        name: (urlsplit(url).hostname or "").partition(".")[0] for name, url in urls.items()
    }
    return frozenset(name for name, service in services.items() if pods.get(service) == 0)


def _pods(revision: Document) -> int:
    """The pods that a Revision has, or is to have."""
    status = revision.get("status") or {}
    return max(status.get("desiredReplicas") or 0, status.get("actualReplicas") or 0)
