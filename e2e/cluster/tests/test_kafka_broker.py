"""The Kafka Broker: how its manifests and its Maven files are changed, and their order."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster import manifests
from e2e.cluster.built import kafka_broker, kafka_data_plane
from e2e.cluster.places import ON_CONTROL_PLANE, REGISTRY

POM = """\
<project>
  <repositories><repository><url>https://snapshots</url></repository></repositories>
  <dependencies>
    <dependency><artifactId>core</artifactId></dependency>
    <dependency>
      <artifactId>core</artifactId>
      <type>test-jar</type>
      <scope>test</scope>
    </dependency>
    <dependency><artifactId>bucket4j-core</artifactId></dependency>
  </dependencies>
</project>
"""


class Kubectl:
    """Keeps what is applied and deleted, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def __call__(self, *words: object, stdin: str = "") -> str:
        self.calls.append((" ".join(map(str, words)), stdin))
        return ""


@pytest.fixture(scope="module")
def installed() -> Kubectl:
    kubectl = Kubectl()
    kafka_broker.install(kubectl)  # type: ignore[arg-type]
    return kubectl


@pytest.fixture(scope="module")
def objects(installed: Kubectl) -> list[dict[str, Any]]:
    return [each for _, text in installed.calls if text for each in yaml.safe_load_all(text)]


def containers(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    pods = [
        each["spec"]["template"]["spec"]
        for each in objects
        if each["kind"] in ("Deployment", "StatefulSet")
    ]
    assert all(ON_CONTROL_PLANE.items() <= pod.items() for pod in pods)
    return [container for pod in pods for container in pod["containers"]]


def test_only_images_that_are_built_are_named(objects: list[dict[str, Any]]) -> None:
    built = {*map(kafka_broker.image, kafka_broker.PROGRAMS), kafka_data_plane.IMAGE}
    assert {container["image"] for container in containers(objects)} == built
    assert all(name.startswith(f"{REGISTRY}/") for name in built)
    assert "ko://" not in str(objects)
    assert "${" not in str([container["image"] for container in containers(objects)])


def test_each_part_of_the_data_plane_runs_its_own_class(objects: list[dict[str, Any]]) -> None:
    """Both are in one image."""
    found = {each["name"]: each.get("args") for each in containers(objects)}
    for name, part in (
        ("kafka-broker-receiver", "receiver"),
        ("kafka-broker-dispatcher", "dispatcher"),
    ):
        assert found[name] == [f"dev.knative.eventing.kafka.broker.{part}loom.Main"]


def test_each_controller_of_the_webhook_works(objects: list[dict[str, Any]]) -> None:
    (webhook,) = [
        each
        for each in objects
        if (each["kind"], each["metadata"]["name"]) == ("Deployment", kafka_broker.WEBHOOK)
    ]
    (container,) = webhook["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["--disable-ha"]


def test_no_pod_of_the_dispatcher_starts_before_the_webhook(installed: Kubectl) -> None:
    """It would never get its Triggers: the webhook gives a pod the volume that has them."""
    kinds, control, ready, data, _ = installed.calls
    assert {each["kind"] for each in yaml.safe_load_all(kinds[1])} == {"CustomResourceDefinition"}
    assert "pods.defaulting.webhook.kafka.eventing.knative.dev" in control[1]
    assert "deployment/kafka-webhook-eventing" in ready[0]
    stateful = [text for _, text in installed.calls if "kind: StatefulSet" in text]
    assert stateful == [data[1]]


def test_topics_of_brokers_are_in_the_site_s_kafka(objects: list[dict[str, Any]]) -> None:
    (found,) = (each for each in objects if each["metadata"]["name"] == kafka_broker.CONFIG_MAP)
    assert found["data"] == kafka_broker.CONFIGURATION


def test_only_definitions_stay(
    objects: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = Kubectl()
    monkeypatch.setattr(kafka_broker, "Kubectl", lambda *_: kubectl)

    class Cluster:
        kubectl = kubeconfig = Path("/nonexistent")

    kafka_broker.down(Cluster())  # type: ignore[arg-type]
    ((line, text),) = kubectl.calls
    assert line.startswith("delete --ignore-not-found")
    removed = [(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(text)]
    applied = {(each["kind"], each["metadata"]["name"]) for each in objects}
    assert {kind for kind, _ in applied - set(removed)} == {"CustomResourceDefinition"}
    assert removed[0][0].endswith("WebhookConfiguration")
    ranks = [manifests.rank({"kind": kind}) for kind, _ in removed]
    assert ranks == sorted(ranks, reverse=True)


def test_maven_fetches_nothing_for_tests(place: Path) -> None:
    for folder in ("", *kafka_data_plane.PARTS):
        (place / folder).mkdir(exist_ok=True)
        (place / folder / "pom.xml").write_text(POM)
    kafka_data_plane.leave_out_tests(place)
    parent, *parts = (
        (place / folder / "pom.xml").read_text() for folder in ("", *kafka_data_plane.PARTS)
    )
    assert "<url>" not in parent
    assert "<scope>test</scope>" in parent  # of what others depend on without a scope
    for text in parts:
        assert text.count("<dependency>") == 2
        assert "test" not in text
        assert "bucket4j-core" in text
