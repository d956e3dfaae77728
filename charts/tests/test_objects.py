"""A cluster accepts every object of the chart, field by field."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendering import (
    CASES,
    CHART,
    Object,
    containers,
    environment,
    helm,
    pods,
    rendered,
    rendered_text,
    template,
)
from schemas import Schemas, flagged

# Kubernetes' rules for names and labels, which no schema contains.
LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
Known = tuple[dict[str, Any], list[dict[str, Any]]]
HOOKS = {"pre-install", "pre-upgrade", "pre-delete", "post-install", "post-upgrade", "test"}


@pytest.mark.parametrize("case", CASES)
def test_helm_lint_accepts_the_chart(case: str) -> None:
    done = helm("lint", "--strict", "--quiet", CHART, "--values", CHART / "ci" / f"{case}.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES)
def test_every_object_is_valid(schemas: Schemas, case: str) -> None:
    errors = [
        f"{each['kind']} {each['metadata']['name']}: {problem}"
        for each in rendered(case)
        for problem in schemas.problems(each)
    ]
    assert errors == []


def test_a_kafka_source_of_either_version(schemas: Schemas) -> None:
    """The chart uses the version that the cluster has."""
    for version in ("v1", "v1beta1"):
        api = f"sources.knative.dev/{version}"
        made = rendered("kafkasource", "--api-versions", f"{api}/KafkaSource")
        sources = [each for each in made if each["kind"] == "KafkaSource"]
        assert {each["apiVersion"] for each in sources} == {api}
        assert [problem for each in sources for problem in schemas.problems(each)] == []


@pytest.mark.parametrize("case", CASES)
def test_names_and_labels(case: str) -> None:
    made = rendered(case)
    for each in made:
        metadata = each["metadata"]
        # The name of a Knative Service becomes part of a host name, a Service and a Deployment.
        host = each["apiVersion"].startswith("serving.knative.dev") and each["kind"] == "Service"
        assert (LABEL if host else SUBDOMAIN).fullmatch(metadata["name"]), metadata["name"]
        for name, value in metadata["labels"].items():
            assert LABEL_VALUE.fullmatch(value), (metadata["name"], name, value)
    counts = Counter((each["kind"], each["metadata"]["name"]) for each in made)
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("case", CASES)
def test_every_object_has_the_release_s_labels(case: str) -> None:
    for each in rendered(case):
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "stampede"
        assert labels["app.kubernetes.io/instance"] == "night"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/component"]


@pytest.mark.parametrize("case", CASES)
def test_rendering_is_reproducible(case: str) -> None:
    """Otherwise every upgrade would replace all pods."""
    values = "--values", CHART / "ci" / f"{case}.yaml"
    assert template(*values).stdout == rendered_text(case)


def test_a_package_renders_the_same_objects(tmp_path: Path) -> None:
    """A package contains all files that the templates read."""
    assert helm("package", CHART, "--destination", tmp_path).returncode == 0
    (package,) = tmp_path.glob("stampede-*.tgz")
    values = "--values", CHART / "ci" / "full.yaml"
    assert template(*values, chart=package).stdout == rendered_text("full")


@pytest.mark.parametrize("case", CASES)
def test_every_image_has_a_fixed_tag(case: str) -> None:
    images = [
        container["image"]
        for each in rendered(case)
        for pod in pods(each)
        for container in containers(pod)
    ]
    assert images
    for image in images:
        tag = image.rpartition("/")[2].partition(":")[2]
        assert tag not in ("", "latest"), image


@pytest.mark.parametrize("case", CASES)
def test_pods_have_no_needless_permissions(case: str) -> None:
    """Pod Security's profile `restricted`, a read-only root, and no token for Kubernetes."""
    for each in rendered(case):
        for pod in pods(each):
            assert pod["spec"]["automountServiceAccountToken"] is False
            for container in containers(pod):
                security = container["securityContext"]
                assert security["runAsNonRoot"] is True
                assert security["runAsUser"] == 65532
                assert security["readOnlyRootFilesystem"] is True
                assert security["allowPrivilegeEscalation"] is False
                assert security["capabilities"] == {"drop": ["ALL"]}
                assert security["seccompProfile"] == {"type": "RuntimeDefault"}
                assert container.get("resources", {}).get("limits", {}).get("memory"), (
                    f"{each['kind']} {each['metadata']['name']} has no memory limit"
                )


@pytest.mark.parametrize("case", CASES)
def test_mounts_and_volumes_match(case: str) -> None:
    for each in rendered(case):
        for pod in pods(each):
            volumes = {volume["name"] for volume in pod["spec"].get("volumes", ())}
            mounted = set()
            for container in containers(pod):
                mounts = container.get("volumeMounts", ())
                paths = [mount["mountPath"] for mount in mounts]
                assert len(set(paths)) == len(paths), (each["metadata"]["name"], paths)
                mounted |= {mount["name"] for mount in mounts}
            assert volumes == mounted, each["metadata"]["name"]
            for container in containers(pod):
                names = [variable["name"] for variable in container.get("env", ())]
                assert len(names) == len(set(names)), (each["metadata"]["name"], names)


@pytest.mark.parametrize("case", CASES)
def test_referenced_objects_exist(case: str) -> None:
    """The chart, or the values, name every object that the chart refers to."""
    made = rendered(case)
    values = (CHART / "ci" / f"{case}.yaml").read_text()
    existing = {(each["kind"], each["metadata"]["name"]) for each in made}
    # Each namespace has these.
    existing |= {("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")}
    for kind, name in references(made):
        outside = re.search(rf"\b{re.escape(name)}\b", values)
        assert (kind, name) in existing or outside, f"there is no {kind} {name}"


def references(made: list[Object]) -> set[tuple[str, str]]:
    """Kind and name of all objects that these objects refer to."""
    found: set[tuple[str, str]] = set()

    def walk(value: Any) -> None:
        if isinstance(value, list):
            for inner in value:
                walk(inner)
        elif isinstance(value, dict):
            if {"apiVersion", "kind", "name"} <= value.keys():
                found.add((value["kind"], value["name"]))
            for key, inner in value.items():
                match key:
                    case "secretKeyRef":
                        found.add(("Secret", inner["name"]))
                    case "configMapKeyRef" | "configMap" if isinstance(inner, dict):
                        found.add(("ConfigMap", inner["name"]))
                    case "secret" if isinstance(inner, dict) and "secretName" in inner:
                        found.add(("Secret", inner["secretName"]))
                    case "serviceAccountName":
                        found.add(("ServiceAccount", inner))
                    case "broker" if isinstance(inner, str):
                        found.add(("Broker", inner))
                walk(inner)

    walk([each.get("spec") for each in made])
    return found


@pytest.mark.parametrize("case", CASES)
def test_selectors_match_pods(case: str) -> None:
    made = rendered(case)
    # Knative adds this label to the pods of a Service.
    labels = [
        pod["metadata"].get("labels", {})
        | {"serving.knative.dev/service": each["metadata"]["name"]}
        for each in made
        for pod in pods(each)
    ]
    for each in made:
        selector = selector_of(each)
        if not selector:
            continue
        wanted = selector.get("matchLabels", {}).items()
        expressions = selector.get("matchExpressions", [])
        assert any(
            wanted <= pod.items() and all(matches(each, pod) for each in expressions)
            for pod in labels
        ), (each["kind"], each["metadata"]["name"], selector)


def selector_of(each: Object) -> dict[str, Any] | None:
    """The selector for pods, or None if the object selects no pods, or all."""
    spec = each.get("spec") or {}
    match each["kind"]:
        case "Deployment" | "StatefulSet" | "PodDisruptionBudget" | "PodMonitor":
            return spec["selector"]
        case "NetworkPolicy":
            return spec["podSelector"]
        case "SinkBinding":
            return spec["subject"].get("selector")
    return None


def matches(expression: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether labels match a matchExpression."""
    present = expression["key"] in labels
    match expression["operator"]:
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case "In":
            return labels.get(expression["key"]) in expression["values"]
        case operator:
            return operator == "NotIn" and labels.get(expression["key"]) not in expression["values"]


@pytest.mark.parametrize("case", CASES)
def test_hooks_delete_their_objects(case: str) -> None:
    for each in rendered(case):
        annotations = each["metadata"].get("annotations", {})
        if "helm.sh/hook" in annotations:
            assert set(annotations["helm.sh/hook"].split(",")) <= HOOKS
            assert "before-hook-creation" in annotations["helm.sh/hook-delete-policy"]
        if each["kind"] == "Job":
            assert each["spec"]["activeDeadlineSeconds"], "a Job without a deadline"
            assert "helm.sh/hook" in annotations, "an upgrade cannot change a Job"


def test_the_default_values_need_no_feature_flag(known: Known) -> None:
    """Knative rejects some fields, for example affinity, unless a feature flag allows them."""
    objects = known[1]
    crd = next(
        each for each in objects if each["metadata"]["name"] == "services.serving.knative.dev"
    )
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    (config,) = (each for each in objects if each["metadata"]["name"] == "config-features")
    default = yaml.safe_load(config["data"]["_example"])

    def needed(case: str) -> set[str]:
        return {
            flag
            for each in rendered(case)
            if each["apiVersion"] == "serving.knative.dev/v1"
            for _, flag in flagged(schema, each)
            if default[flag] != "enabled"
        }

    assert needed("minimal") == set()
    assert needed("full") == {
        f"kubernetes.podspec-{name}"
        for name in (
            *("affinity", "nodeselector", "priorityclassname", "tolerations"),
            "topologyspreadconstraints",
        )
    }


@pytest.mark.parametrize("case", CASES)
def test_knative_knows_all_autoscaling_annotations(known: Known, case: str) -> None:
    """Knative ignores unknown annotations silently."""
    (source,) = (each for each in known[1] if each["metadata"]["name"] == "register.go")
    keys = set(re.findall(r'GroupName \+ "/([a-z-]+)"', source["text"]))
    assert {"min-scale", "target-burst-capacity", "scale-down-delay"} <= keys
    for each in rendered(case):
        for pod in pods(each):
            for name in pod["metadata"].get("annotations", {}):
                group, _, key = name.partition("/")
                assert group != "autoscaling.knative.dev" or key in keys, name


@pytest.mark.parametrize("case", CASES)
def test_no_secret_is_outside_a_secret(case: str) -> None:
    """Keys are in Secrets, and nowhere else."""
    for each in rendered(case):
        for pod in pods(each):
            for container in containers(pod):
                for name, value in environment(container).items():
                    assert value is None or not re.search("SECRET_KEY|ACCESS_KEY|PASSWORD", name)
        if each["kind"] != "Secret":
            assert "stampede-local" not in json.dumps(each), "the key of ci/minimal.yaml"
