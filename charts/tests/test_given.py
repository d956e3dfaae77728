"""What the values give to single functions: placement, labels, annotations, domains."""

import re
from typing import Any

import pytest
import yaml
from rendering import CHART, Object, containers, objects, pods, rendered, template

MINIMAL = "--values", CHART / "ci" / "minimal.yaml"
DIGEST = f"sha256:{'0a' * 32}"
ALERTS_POOL = {"example.org/pool": "alerts"}


def service(name: str) -> Object:
    return objects("full", "Service")[name]


def pod(name: str) -> dict[str, Any]:
    return service(name)["spec"]["template"]


def test_a_function_has_its_own_placement_or_that_of_all() -> None:
    assert pod("alerts-read")["spec"]["nodeSelector"] == {"example.org/pool": "readers"}
    assert pod("alerts-read")["spec"]["priorityClassName"] == "alerts-readers"
    assert pod("alerts-read")["spec"]["tolerations"] == pod("alerts-bulk")["spec"]["tolerations"]
    assert pod("alerts-bulk")["spec"]["nodeSelector"] == ALERTS_POOL
    assert pod("alerts-bulk")["spec"]["priorityClassName"] == "alerts"
    assert "nodeSelector" not in pod("alerts-notifications")["spec"]  # an empty one is one too


def test_labels_and_annotations_of_all_and_of_one_function() -> None:
    read, bulk = service("alerts-read")["metadata"], service("alerts-bulk")["metadata"]
    assert (
        read["labels"].items() >= {"example.org/cost": "alerts", "example.org/tier": "edge"}.items()
    )
    assert "example.org/tier" not in bulk["labels"]
    assert read["annotations"]["example.org/page"] == "readers"
    assert bulk["annotations"] == {"example.org/page": "nobody"}
    assert pod("alerts-read")["metadata"]["annotations"]["example.org/team"] == "readers"
    assert pod("alerts-bulk")["metadata"]["annotations"]["example.org/team"] == "alerts"
    assert pod("alerts-notifications")["metadata"]["labels"]["example.org/tier"] == "edge"


def test_labels_of_all_pods() -> None:
    lacking = [
        each["metadata"]["name"]
        for each in rendered("full")
        for one in pods(each)
        if each["kind"] != "Pod" and "example.org/cost" not in one["metadata"]["labels"]
    ]
    assert lacking == []


def test_a_rollout_takes_its_time() -> None:
    assert (
        service("alerts-read")["metadata"]["annotations"]["serving.knative.dev/rollout-duration"]
        == "120s"
    )


def test_a_domain_leads_to_its_function() -> None:
    (mapping,) = objects("full", "DomainMapping").values()
    assert mapping["metadata"]["name"] == "alerts.example.org"
    assert mapping["spec"]["ref"]["name"] == "alerts-read"
    assert mapping["spec"]["tls"] == {"secretName": "alerts-tls"}


def test_a_digest_replaces_the_tag() -> None:
    done = template(*MINIMAL, "--set", f"image.digest={DIGEST}", "--set", "image.tag=latest")
    made = [each for each in yaml.safe_load_all(done.stdout) if each]
    images = {
        one["image"] for each in made for one_pod in pods(each) for one in containers(one_pod)
    }
    assert images == {f"dev.local/stampede@{DIGEST}"}


def test_the_broker_s_delivery() -> None:
    (broker,) = objects("full", "Broker").values()
    assert broker["spec"]["delivery"]["deadLetterSink"] == {"uri": "http://missed.default.svc/"}
    assert all(
        re.fullmatch(r"PT\d+S", each["spec"]["delivery"]["timeout"])
        for each in objects("full", "Trigger").values()
    )


def test_event_types_name_the_release_s_broker_and_bucket() -> None:
    (kind,) = objects("full", "EventType").values()
    attributes = {each["name"]: each.get("value") for each in kind["spec"]["attributes"]}
    assert attributes["source"] == "aws:s3.garching.alerts"
    assert kind["spec"]["reference"]["name"] in objects("full", "Broker")


def test_an_old_kubernetes_is_refused() -> None:
    done = template(*MINIMAL, "--kube-version", "1.31.9")
    assert done.returncode != 0
    assert "1.32" in done.stderr
    for version in ("1.32.0", "1.32.4-gke.1"):
        assert template(*MINIMAL, "--kube-version", version).returncode == 0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('functions.read.podLabels={"app.kubernetes.io/name": "a"}', "app.kubernetes.io/name"),
        ('podAnnotations={"autoscaling.knative.dev/min-scale": "0"}', "min-scale"),
        ('functions.read.domain={"name": "alerts"}', "/functions/read/domain/name"),
        ("image.digest=latest", "/image/digest"),
        ("functions.read.rolloutDuration=slowly", "/functions/read/rolloutDuration"),
        ('broker.delivery={"timeout": "30s"}', "/broker/delivery/timeout"),
        (
            'triggers={"a": {"subscriber": {"uri": "http://a"}, "delivery": {"retries": 1}}}',
            "retries",
        ),
        (
            'triggers={"a": {"subscriber": {"uri": "http://a"}, "filters": [{"is": {}}]}}',
            "/triggers/a/filters/0",
        ),
        (
            'functions={"cutouts": {"domain": {"name": "a.org"}}}',
            "functions.cutouts.domain is set, but functions.cutouts.public is false",
        ),
        (
            'functions={"read": {"domain": {"name": "a.b"}}, "bulk": {"domain": {"name": "a.b"}}}',
            "a domain leads to one function",
        ),
    ],
)
def test_wrong_values(value: str, message: str) -> None:
    done = template(*MINIMAL, "--set-json" if "{" in value else "--set", value)
    assert done.returncode != 0
    assert message in done.stderr
