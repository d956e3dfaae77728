"""NetworkPolicies: who may connect to the pods, and where these may connect to."""

import json

import pytest
import yaml
from rendering import CHART, Object, objects, rendered, template


def namespaces(rule: Object, direction: str) -> list[str]:
    (peer,) = rule[direction]
    (expression,) = peer["namespaceSelector"]["matchExpressions"]
    assert (expression["key"], expression["operator"]) == ("kubernetes.io/metadata.name", "In")
    found: list[str] = expression["values"]
    return found


def test_by_default_only_incoming_connections_are_restricted() -> None:
    made = rendered("minimal", "--set", "networkPolicy.enabled=true")
    policies = [each["spec"] for each in made if each["kind"] == "NetworkPolicy"]
    assert len(policies) == 2
    for spec in policies:
        assert spec["policyTypes"] == ["Ingress"]
        assert "egress" not in spec


def test_outgoing_connections_reach_dns_knative_and_what_the_rules_name() -> None:
    values = yaml.safe_load((CHART / "ci" / "full.yaml").read_text())["networkPolicy"]
    policies = objects("full", "NetworkPolicy")
    assert policies
    for each in policies.values():
        spec = each["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        dns, knative, *rules = spec["egress"]
        assert namespaces(dns, "to") == ["kube-system"]
        assert {port["protocol"] for port in dns["ports"]} == {"UDP", "TCP"}
        assert {port["port"] for port in dns["ports"]} == {53}
        assert namespaces(knative, "to") == values["fromNamespaces"]
        assert rules == values["egress"]["rules"]


def test_functions_accept_connections_from_the_namespaces_of_the_values() -> None:
    names = ["knative-serving", "my-ingress"]
    made = rendered(
        "minimal",
        *("--set", "networkPolicy.enabled=true"),
        *("--set-json", f"networkPolicy.fromNamespaces={json.dumps(names)}"),
    )
    (policy,) = (each for each in made if each["metadata"]["name"].endswith("-functions"))
    assert namespaces(policy["spec"]["ingress"][0], "from") == names


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("egress.enabled=true", "no function could reach the store"),
        ('egress.rules=[{}, {"into": []}]', "/networkPolicy/egress/rules/1"),
    ],
)
def test_values_that_cannot_work(value: str, error: str) -> None:
    minimal = CHART / "ci" / "minimal.yaml"
    done = template("--values", minimal, "--set-json", f"networkPolicy.{value}")
    assert done.returncode
    assert error in done.stderr
