"""Knative: is it new enough, does it allow what the functions need, and is all of them ready?

What the functions need is read from the release's own objects in the namespace of this pod.
"""

from collections.abc import Iterator

from stampede.doctor.finding import Finding, Installation, NotExamined, error, warning
from stampede.doctor.ingress import INGRESSES, POLICIES, not_admitted
from stampede.doctor.knative_settings import (
    Configuration,
    features,
    scaling,
    timeouts,
    tokens,
    too_old,
)
from stampede.doctor.kubernetes import OWN, Document, Forbidden, Kubernetes

SERVING, EVENTING = "knative-serving", "knative-eventing"
# The release's objects that have a condition Ready, as group, version and kind's plural.
KINDS = (
    "serving.knative.dev/v1/services",
    "eventing.knative.dev/v1/brokers",
    "eventing.knative.dev/v1/triggers",
    "sources.knative.dev/v1/pingsources",
    "sources.knative.dev/v1/sinkbindings",
    "sources.knative.dev/v1/kafkasources",
)


def knative(installation: Installation) -> Iterator[Finding]:
    """Knative is new enough, allows what functions need, reaches them, and all is ready."""
    reader = _Reader(Kubernetes())
    objects = {kind: reader.own(kind) for kind in KINDS}
    services = objects[KINDS[0]]
    if serving := reader.configuration("config-features", SERVING):
        yield from too_old("Serving", serving)
        yield from features(serving, services)
    if defaults := reader.configuration("config-defaults", SERVING):
        yield from timeouts(defaults, services)
    if autoscaler := reader.configuration("config-autoscaler", SERVING):
        yield from scaling(autoscaler)
    if eventing := reader.configuration("config-features", EVENTING):
        yield from too_old("Eventing", eventing)
        yield from tokens(eventing, services)
    yield from not_admitted(reader.own(INGRESSES), reader.all(POLICIES))
    for where in reader.absent:
        yield warning(f"there is no {where}", "install Knative there, or ignore this")
    for kind, found in objects.items():
        for each in found:
            yield from _not_ready(kind, each, reader.kubernetes.namespace)
    if reader.refused:
        raise NotExamined(
            f"{'; '.join(dict.fromkeys(reader.refused))}. The chart's value doctor.knative makes "
            "the Roles and RoleBindings for it"
        )


class _Reader:
    """Reads what it may, and notes what it may not."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self.kubernetes = kubernetes
        self.refused: list[str] = []
        self.absent: list[str] = []

    def configuration(self, name: str, namespace: str) -> Configuration | None:
        """A ConfigMap of Knative."""
        refused = len(self.refused)
        found = self._get(f"/api/v1/namespaces/{namespace}/configmaps/{name}")
        if found is None:
            if len(self.refused) == refused:
                self.absent.append(f"ConfigMap {name} in the namespace {namespace}")
            return None
        labels = found["metadata"].get("labels") or {}
        version = labels.get("app.kubernetes.io/version", "")
        return Configuration(name, namespace, found.get("data") or {}, version)

    def own(self, kind: str) -> list[Document]:
        """The release's objects of a kind."""
        return self.all(kind, OWN)

    def all(self, kind: str, selector: str = "") -> list[Document]:
        """All objects of a kind in the namespace, or those that a selector selects."""
        group, _, plural = kind.rpartition("/")
        rest = f"namespaces/{self.kubernetes.namespace}/{plural}{selector}"
        found = self._get(f"/apis/{group}/{rest}")
        if found is None and plural == "kafkasources":  # of an earlier release
            found = self._get(f"/apis/{group}beta1/{rest}")
        items: list[Document] = (found or {}).get("items", [])
        return items

    def _get(self, path: str) -> Document | None:
        try:
            return self.kubernetes.get(path)
        except Forbidden as why:
            self.refused.append(str(why))
            return None


def _not_ready(kind: str, each: Document, namespace: str) -> Iterator[Finding]:
    conditions = (each.get("status") or {}).get("conditions") or ()
    ready: Document = next((each for each in conditions if each["type"] == "Ready"), {})
    group, plural, name = kind.partition("/")[0], kind.rpartition("/")[2], each["metadata"]["name"]
    what = f"the {plural.removesuffix('s')} {name}"
    # Plain `services` are Kubernetes' own.
    repair = f"`kubectl --namespace {namespace} describe {plural}.{group} {name}`"
    why = ": ".join(part for part in (ready.get("reason"), ready.get("message")) if part)
    if ready.get("status") == "False":
        yield error(f"{what} is not ready: {why}", repair)
    elif ready.get("status") != "True":
        yield warning(f"{what} is not ready yet: {why or 'Knative has not looked at it'}", repair)
