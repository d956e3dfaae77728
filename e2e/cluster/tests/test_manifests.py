"""Knative's manifests as they are applied."""

import re
from collections import Counter
from typing import Any

import pytest

from e2e.cluster import manifests
from e2e.cluster.built import images
from e2e.cluster.places import INGRESS_PORT, ON_CONTROL_PLANE, REGISTRY


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    """All objects."""
    return [*manifests.knative(), *manifests.ingress()]


def test_every_image_that_runs_is_built(objects: list[dict[str, Any]]) -> None:
    wanted = {
        container["image"]
        for each in objects
        if each["kind"] in ("Deployment", "StatefulSet")
        for container in each["spec"]["template"]["spec"]["containers"]
    }
    wanted |= {
        value
        for each in objects
        if each["kind"] == "ConfigMap"
        for name, value in each.get("data", {}).items()
        if name == "queue-sidecar-image"
    }
    assert wanted == set(images.image_names()) - {images.PAUSE_IMAGE, images.REGISTRY_IMAGE}


def test_no_image_needs_pulling(objects: list[dict[str, Any]]) -> None:
    named = re.findall(r"'image': '([^']*)'", str(objects))
    assert named
    assert [name for name in named if not name.startswith(f"{REGISTRY}/")] == []


def test_no_worker_has_pods_of_knative_or_its_ingress(objects: list[dict[str, Any]]) -> None:
    kinds = ("Deployment", "StatefulSet")
    pods = [each["spec"]["template"]["spec"] for each in objects if each["kind"] in kinds]
    assert pods
    assert [pod for pod in pods if not ON_CONTROL_PLANE.items() <= pod.items()] == []


def test_names_are_unique(objects: list[dict[str, Any]]) -> None:
    names = Counter((each["kind"], *place(each)) for each in objects)
    assert [name for name, count in names.items() if count > 1] == []


def test_knative_knows_all_configured_settings(objects: list[dict[str, Any]]) -> None:
    maps = {each["metadata"]["name"]: each for each in objects if each["kind"] == "ConfigMap"}
    for name, settings in manifests.CONFIGURATION.items():
        assert settings.items() <= maps[name]["data"].items()
        if name != "config-domain":  # whose keys are domains
            example = maps[name]["data"]["_example"]
            assert all(setting in example for setting in settings), name


def test_feature_flags_are_a_release_s_defaults(objects: list[dict[str, Any]]) -> None:
    """Test the chart with the feature flags that users have."""
    (features,) = (
        each for each in objects if place(each) == ("knative-serving", "config-features")
    )
    assert [*features["data"]] == ["_example"]


def test_the_ingress_has_its_port(objects: list[dict[str, Any]]) -> None:
    ports = [
        port["nodePort"]
        for each in objects
        if each["kind"] == "Service" and each["spec"].get("type") == "NodePort"
        for port in each["spec"]["ports"]
    ]
    assert ports == [INGRESS_PORT]


def test_a_busy_machine_restarts_nothing(objects: list[dict[str, Any]]) -> None:
    """A container is restarted only after a minute without a response."""
    probes = [
        container["livenessProbe"]
        for each in objects
        if each["kind"] == "Deployment" and each["metadata"]["namespace"] != "traefik"
        for container in each["spec"]["template"]["spec"]["containers"]
        if "livenessProbe" in container
    ]
    assert len(probes) > 8
    assert min(each["periodSeconds"] * each["failureThreshold"] for each in probes) >= 60


def test_webhooks_come_last(objects: list[dict[str, Any]]) -> None:
    kinds = [each["kind"] for each in sorted(objects, key=manifests.rank)]
    webhooks = [kind.endswith("WebhookConfiguration") for kind in kinds]
    assert any(webhooks)
    assert webhooks == sorted(webhooks)


def place(each: dict[str, Any]) -> tuple[str, str]:
    """Namespace and name."""
    return each["metadata"].get("namespace", ""), each["metadata"]["name"]
