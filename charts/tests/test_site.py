"""What a site adds by values: variables, volumes, labels, objects, security, a mirror."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendering import (
    CHART,
    ROOT,
    Object,
    containers,
    environment,
    objects,
    pods,
    rendered,
    template,
)

MINIMAL = ("--values", str(CHART / "ci" / "minimal.yaml"))
ADDED = {"HTTPS_PROXY", "SITE_TOKEN"}


def running(made: list[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Name, pod and container of all that runs Stampede: no script of the chart's does."""
    for each in made:
        for pod in pods(each):
            for container in containers(pod):
                if container.get("command", [""])[0] != "python3":
                    yield f"{each['metadata']['name']}/{container['name']}", pod, container


def test_every_container_has_the_site_s_variables_and_volumes() -> None:
    found = list(running(rendered("site")))
    assert len(found) > 20
    for name, pod, container in found:
        assert environment(container).keys() >= ADDED, name
        mounts = [m for m in container["volumeMounts"] if m["name"] == "site"]
        assert mounts == [{"name": "site", "mountPath": "/site", "readOnly": True}], name
        volumes = [v for v in pod["spec"]["volumes"] if v["name"] == "site"]
        assert volumes == [{"name": "site", "configMap": {"name": "site-files"}}], name


def test_every_object_has_the_site_s_label_and_annotation() -> None:
    made = rendered("site")
    kinds = {each["kind"] for each in made}
    assert kinds >= {"Broker", "EventPolicy", "EventType", "Job", "KafkaSource", "PrometheusRule"}
    lacking = [
        (each["kind"], each["metadata"]["name"])
        for each in made
        if each["metadata"]["labels"].get("example.org/cost") != "alerts"
        or each["metadata"].get("annotations", {}).get("example.org/contact") != "operators"
    ]
    assert lacking == []
    assert objects("site", "Broker")["night"]["metadata"]["annotations"] == {
        "eventing.knative.dev/broker.class": "Kafka",
        "example.org/contact": "operators",
    }


def test_labels_of_all_objects_change_no_selector() -> None:
    """Kubernetes refuses an upgrade that changes one, and pods would be replaced."""
    for each in rendered("site"):
        assert "example.org/cost" not in str(each.get("spec", {}).get("selector", ""))
        for pod in pods(each):
            if each["kind"] != "Pod":
                assert "example.org/cost" not in pod["metadata"].get("labels", {})


def test_further_objects_are_templates() -> None:
    maps = objects("site", "ConfigMap")
    assert maps["night-site"]["data"] == {"note": "of sky"}
    assert "night-text" in maps


def test_security_contexts() -> None:
    for name, pod, container in running(rendered("site")):
        assert pod["spec"]["securityContext"] == {"fsGroup": 65532}, name
        assert container["securityContext"]["runAsGroup"] == 65532, name
        assert container["securityContext"]["runAsUser"] == 65532, name
    for name, pod, _ in running(rendered("minimal")):
        assert "securityContext" not in pod["spec"], name
    without = rendered("minimal", "--set", "securityContext.runAsUser=null")
    for name, _, container in running(without):
        assert "runAsUser" not in container["securityContext"], name
        assert container["securityContext"]["runAsNonRoot"] is True, name


@pytest.mark.parametrize(
    ("repository", "image"),
    [
        ("dev.local/stampede", "mirror:5000/hub/stampede:0.1.0"),
        ("registry.example.org:5000/sky/stampede", "mirror:5000/hub/sky/stampede:0.1.0"),
        ("localhost/stampede", "mirror:5000/hub/stampede:0.1.0"),
        ("sky/stampede", "mirror:5000/hub/sky/stampede:0.1.0"),
        ("stampede", "mirror:5000/hub/stampede:0.1.0"),
    ],
)
def test_a_mirror_replaces_the_registry(repository: str, image: str) -> None:
    values = f"global.imageRegistry=mirror:5000/hub,image.repository={repository}"
    made = rendered("minimal", "--set", values)
    assert {c["image"] for each in made for pod in pods(each) for c in containers(pod)} == {image}


@pytest.mark.parametrize(
    ("values", "disk"),
    [
        ("toolbox.temporary=16Gi", ("64Mi", "17408Mi")),
        ("toolbox.temporary=1.5Gi", ("64Mi", "2560Mi")),
        ("toolbox.resources.limits.ephemeral-storage=20Gi", ("64Mi", "20Gi")),
        ("toolbox.resources.requests.ephemeral-storage=1Gi", ("1Gi", "17408Mi")),
    ],
)
def test_the_toolbox_is_bounded(values: str, disk: tuple[str, str]) -> None:
    (toolbox,) = (
        each
        for each in rendered("minimal", "--set", values)
        if each["metadata"]["name"] == "night-toolbox" and each["kind"] == "Deployment"
    )
    (container,) = toolbox["spec"]["template"]["spec"]["containers"]
    resources = container["resources"]
    assert resources["limits"]["memory"] == "2Gi"
    found = tuple(resources[each]["ephemeral-storage"] for each in ("requests", "limits"))
    assert found == disk


def test_a_function_may_bound_its_disk() -> None:
    (container,) = objects("site", "Service")["night-read"]["spec"]["template"]["spec"][
        "containers"
    ]
    resources = container["resources"]
    assert resources["requests"]["ephemeral-storage"] == "64Mi"
    assert resources["limits"] == {"memory": "1Gi", "ephemeral-storage": "1Gi"}


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ('extraEnv=[{"name": "STAMPEDE_STORE", "value": "a"}]', "/extraEnv/0/name"),
        ('extraVolumes=[{"name": "tmp", "emptyDir": {}}]', "/extraVolumes/0/name"),
        ('extraVolumes=[{"name": "store-keys", "emptyDir": {}}]', "/extraVolumes/0/name"),
        ('extraVolumeMounts=[{"name": "a", "mountPath": "/tmp"}]', "/extraVolumeMounts/0"),
        ('extraVolumeMounts=[{"name": "a", "mountPath": "/a"}]', "no volume a in extraVolumes"),
        ('commonLabels={"app.kubernetes.io/name": "a"}', "'app.kubernetes.io/name'"),
        ('commonAnnotations={"helm.sh/hook": "test"}', "'helm.sh/hook'"),
        ('global={"imageRegistry": "https://mirror"}', "/global/imageRegistry"),
        (
            '{"commonLabels": {"a": "b"}, "serviceLabels": {"a": "c"}}',
            "a is in commonLabels and in serviceLabels: remove one of them",
        ),
        (
            '{"commonAnnotations": {"a": "b"}, "functions": {"read": '
            '{"serviceAnnotations": {"a": "c"}}}}',
            "a is in commonAnnotations and in functions.read.serviceAnnotations",
        ),
    ],
)
def test_wrong_additions(value: str, error: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    name, _, rest = value.partition("=")
    file.write_text(value if value.startswith("{") else f"{name}: {rest}")
    done = template(*MINIMAL, "--values", file)
    assert done.returncode
    assert error in done.stderr


def metadata() -> dict[str, Any]:
    chart: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
    return chart


def test_the_chart_names_its_image() -> None:
    listed = yaml.safe_load(metadata()["annotations"]["artifacthub.io/images"])
    used = {c["image"] for e in rendered("minimal") for pod in pods(e) for c in containers(pod)}
    assert {each["image"] for each in listed} == used


def test_the_chart_tells_its_changes() -> None:
    """Those of its version in the changelog, word for word without links."""
    chart = metadata()
    log = (ROOT / "CHANGELOG.md").read_text()
    (section,) = re.findall(
        rf"^## {re.escape(chart['version'])} \(.*?(?=^## |\Z)", log, re.MULTILINE | re.DOTALL
    )
    plain = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(section.split()))
    changes = yaml.safe_load(chart["annotations"]["artifacthub.io/changes"])
    assert changes
    for change in changes:
        heading = f"### {change['kind'].capitalize()}"
        assert heading in plain
        assert change["description"] in plain.split(heading)[1].split(" ### ")[0]
