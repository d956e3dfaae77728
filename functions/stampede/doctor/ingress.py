"""Does the release's NetworkPolicy admit Knative's ingress? If not, each request ends in 502.

An ingress writes the address of its Service into the status of each of Knative's Ingresses. So the
namespace is known, whatever the ingress is and wherever it runs.
"""

from collections.abc import Iterator

from stampede.doctor.finding import Finding, error
from stampede.doctor.kubernetes import Document

INGRESSES = "networking.internal.knative.dev/v1alpha1/ingresses"
POLICIES = "networking.k8s.io/v1/networkpolicies"
KINDS = (INGRESSES, POLICIES)
"""What this reads, as group, version and kind's plural. Policies of others may admit too."""
NAME = "kubernetes.io/metadata.name"
"""The label that each namespace has."""
FUNCTION = "serving.knative.dev/service"
"""The label of a function's pods."""
PORTS = (8012, 8013, 8112)
"""Where a function's pod takes requests: HTTP/1, HTTP/2 and TLS of its queue-proxy."""


def not_admitted(ingresses: list[Document], policies: list[Document]) -> Iterator[Finding]:
    """Namespaces of the ingress that no policy admits, if a policy restricts the functions.

    Parameters
    ----------
    ingresses
        Knative's Ingresses of the release.
    policies
        All NetworkPolicies of the namespace, also of others.
    """
    if not any(_restricts_functions(each) for each in policies):
        return
    for namespace in sorted({found for each in ingresses for found in _namespaces(each)}):
        if not any(_admits(each, namespace) for each in policies):
            yield error(
                f"the NetworkPolicy does not admit the ingress of {namespace}: requests to the "
                "functions end in 502",
                f"add {namespace} to networkPolicy.fromNamespaces of the chart's values",
            )


def _namespaces(ingress: Document) -> Iterator[str]:
    """Namespaces of the Services that its status names, such as NAME.NAMESPACE.svc.DOMAIN."""
    status = ingress.get("status") or {}
    for side in ("publicLoadBalancer", "privateLoadBalancer"):
        for each in (status.get(side) or {}).get("ingress") or ():
            labels = (each.get("domainInternal") or "").split(".")
            if labels[2:3] == ["svc"]:
                yield labels[1]


def _restricts_functions(policy: Document) -> bool:
    selector = policy["spec"].get("podSelector") or {}
    keys = {each["key"] for each in selector.get("matchExpressions") or ()}
    return FUNCTION in keys | set(selector.get("matchLabels") or ())


def _admits(policy: Document, namespace: str) -> bool:
    """Whether a policy may admit it. What cannot be told from names counts as admitted."""
    return any(
        not rule.get("from") or any(_matches(peer, namespace) for peer in rule["from"])
        for rule in policy["spec"].get("ingress") or ()
        if _of_requests(rule)
    )


def _of_requests(rule: Document) -> bool:
    ports = [each.get("port") for each in rule.get("ports") or ()]
    return not ports or any(not isinstance(port, int) or port in PORTS for port in ports)


def _matches(peer: Document, namespace: str) -> bool:
    if "ipBlock" in peer:
        return True
    selector = peer.get("namespaceSelector")
    if selector is None:  # pods of the policy's own namespace
        return False
    names = (selector.get("matchLabels") or {}).get(NAME, namespace) == namespace
    return names and all(
        namespace in (each.get("values") or ())
        for each in selector.get("matchExpressions") or ()
        if (each["key"], each["operator"]) == (NAME, "In")
    )
