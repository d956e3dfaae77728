"""The doctor stops an installation that could not work, and Helm prints its words."""

import json
from typing import Any

import pytest

from e2e.commands import until
from e2e.on_cluster.release import CHART, Release

pytestmark = pytest.mark.timeout(600)

NAME = "faulty"
STORE, SECRET = "store.url=http://ceph.site.svc:9/stampede", "store.existingSecret=nowhere"
FAULTS = {
    STORE: "ERROR store: the store does not let us list",
    SECRET: "ERROR store: STAMPEDE_ACCESS_KEY is not set",
}

# A Trigger of the release, by its label, whose Broker does not exist.
LOST = "lost"
TRIGGER = {
    "apiVersion": "eventing.knative.dev/v1",
    "kind": "Trigger",
    "metadata": {"name": LOST, "labels": {"app.kubernetes.io/name": "stampede"}},
    "spec": {
        "broker": "nowhere",
        "subscriber": {"ref": {"apiVersion": "v1", "kind": "Service", "name": "kubernetes"}},
    },
}


@pytest.mark.parametrize("value", [STORE, pytest.param(SECRET, marks=pytest.mark.long)])
def test_a_faulty_installation_is_stopped(release: Release, value: str) -> None:
    helm, namespace = release.cluster.helm, ("--namespace", release.name)
    of_it = ("--selector", f"app.kubernetes.io/instance={NAME}")
    values = ("--values", release.values, "--set", value)
    try:
        done = helm("install", NAME, CHART, *namespace, *values, seconds=300, check=False)
        assert done.status
        assert FAULTS[value] in done.output
        assert "helm uninstall --no-hooks" in done.output
        assert not release.get("services.serving.knative.dev", *of_it)
    finally:
        helm("uninstall", NAME, *namespace, "--no-hooks")
        release.kubectl("delete", "jobs", *of_it)


def knative(release: Release) -> list[str]:
    """What the doctor finds wrong with Knative, as it reads it from the toolbox."""
    output = release.stampede("doctor", "--json", check=False).output
    checks: list[dict[str, Any]] = json.JSONDecoder().raw_decode(output[output.index("[\n") :])[0]
    (found,) = (each for each in checks if each["check"] == "Knative")
    assert found["skipped"] == "", "the Roles of the chart allow all that it reads"
    # The release accepts tokens, and this cluster's Knative gives none outside test_sender_tokens.
    faults = [each["fault"] for each in found["findings"]]
    return [fault for fault in faults if "authentication-oidc" not in fault]


def test_the_doctor_examines_knative(release: Release) -> None:
    release.wait_until_ready()
    assert knative(release) == []
    apply = ("apply", "--filename", "-")
    release.kubectl(*apply, stdin=json.dumps(TRIGGER))
    try:
        until(lambda: knative(release), 120, 1)
        (fault,) = knative(release)
        assert fault.startswith(f"the trigger {LOST} is not ready")
    finally:
        release.kubectl("delete", "trigger", LOST)


def test_the_doctor_names_an_ingress_that_no_policy_admits(release: Release) -> None:
    """The namespace comes from the status that the ingress's controller has written."""
    release.wait_until_ready()
    name = f"{release.name}-functions"
    (policy,) = release.get("networkpolicies", name)
    rules = policy["spec"]["ingress"]
    (term,) = rules[0]["from"][0]["namespaceSelector"]["matchExpressions"]
    fewer = {**term, "values": ["knative-serving", "knative-eventing"]}
    denied = {"from": [{"namespaceSelector": {"matchExpressions": [fewer]}}]}
    patch = ("patch", "networkpolicy", name, "--type", "merge", "--patch")
    release.kubectl(*patch, json.dumps({"spec": {"ingress": [denied, *rules[1:]]}}))
    try:
        (fault,) = knative(release)
        assert fault.startswith("the NetworkPolicy does not admit the ingress of ")
    finally:
        release.kubectl(*patch, json.dumps({"spec": {"ingress": rules}}))
    assert knative(release) == []
