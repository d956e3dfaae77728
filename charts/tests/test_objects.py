"""Every object that the chart makes is one that a cluster takes, field by field."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendering import CASES, CHART, Object, containers, environment, helm, pods, rendered, template
from schemas import Schemas, flagged

# As Kubernetes checks names and labels, which no schema says.
LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
HOOKS = {"pre-delete", "post-install", "post-upgrade", "test"}


@pytest.mark.parametrize("case", CASES)
def test_helm_has_nothing_to_say_against_it(case: str) -> None:
    told = helm("lint", "--strict", "--quiet", CHART, "--values", CHART / "ci" / f"{case}.yaml")
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize("case", CASES)
def test_every_object_is_valid(schemas: Schemas, case: str) -> None:
    wrong = [
        f"{each['kind']} {each['metadata']['name']}: {problem}"
        for each in rendered(case)
        for problem in schemas.problems(each)
    ]
    assert wrong == []


def test_a_kafka_source_of_either_version(schemas: Schemas) -> None:
    """The chart asks the cluster which it has."""
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
        # A Knative Service becomes a host's name, a Service and a Deployment.
        host = each["apiVersion"].startswith("serving.knative.dev")
        assert (LABEL if host else SUBDOMAIN).fullmatch(metadata["name"]), metadata["name"]
        for name, value in metadata["labels"].items():
            assert LABEL_VALUE.fullmatch(value), (metadata["name"], name, value)
    several = Counter((each["kind"], each["metadata"]["name"]) for each in made)
    assert [which for which, number in several.items() if number > 1] == []


@pytest.mark.parametrize("case", CASES)
def test_every_object_says_whose_it_is(case: str) -> None:
    for each in rendered(case):
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "stampede"
        assert labels["app.kubernetes.io/instance"] == "night"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/component"]


@pytest.mark.parametrize("case", CASES)
def test_rendered_twice_it_is_the_same(case: str) -> None:
    """Else every upgrade would start all pods anew."""
    values = "--values", CHART / "ci" / f"{case}.yaml"
    assert template(*values).stdout == template(*values).stdout


def test_packed_it_is_the_same(tmp_path: Path) -> None:
    """Nothing that the templates read is missing from a package."""
    assert helm("package", CHART, "--destination", tmp_path).returncode == 0
    (package,) = tmp_path.glob("stampede-*.tgz")
    values = "--values", CHART / "ci" / "full.yaml"
    assert template(*values, chart=package).stdout == template(*values).stdout


@pytest.mark.parametrize("case", CASES)
def test_no_image_changes_under_a_name(case: str) -> None:
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
def test_pods_may_do_nothing_but_their_work(case: str) -> None:
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
                    f"{each['kind']} {each['metadata']['name']} may use any memory"
                )


@pytest.mark.parametrize("case", CASES)
def test_what_a_pod_mounts_is_there(case: str) -> None:
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
def test_what_is_referred_to_is_there(case: str) -> None:
    """Everything the chart names is made by it, or named by the values."""
    made = rendered(case)
    values = (CHART / "ci" / f"{case}.yaml").read_text()
    there = {(each["kind"], each["metadata"]["name"]) for each in made}
    for kind, name in references(made):
        outside = re.search(rf"\b{re.escape(name)}\b", values)
        assert (kind, name) in there or outside, f"there is no {kind} {name}"


def references(made: list[Object]) -> set[tuple[str, str]]:
    """Kind and name of everything that objects refer to."""
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
def test_selectors_find_somebody(case: str) -> None:
    made = rendered(case)
    # Knative adds a label to the pods of a Service.
    labels = [
        pod["metadata"].get("labels", {})
        | {"serving.knative.dev/service": each["metadata"]["name"]}
        for each in made
        for pod in pods(each)
    ]
    for each in made:
        wanted = selector(each)
        if not wanted:
            continue
        matches = wanted.get("matchLabels", {}).items()
        asked = wanted.get("matchExpressions", [])
        assert any(
            matches <= one.items() and all(expressed(each, one) for each in asked) for one in labels
        ), (each["kind"], each["metadata"]["name"], wanted)


def selector(each: Object) -> dict[str, Any] | None:
    """By which an object finds pods; None where it finds none, or all."""
    spec = each.get("spec") or {}
    match each["kind"]:
        case "Deployment" | "PodDisruptionBudget" | "PodMonitor":
            return spec["selector"]
        case "NetworkPolicy":
            return spec["podSelector"]
        case "SinkBinding":
            return spec["subject"].get("selector")
    return None


def expressed(asked: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether labels are as a matchExpression asks."""
    there = asked["key"] in labels
    match asked["operator"]:
        case "Exists":
            return there
        case "DoesNotExist":
            return not there
        case "In":
            return labels.get(asked["key"]) in asked["values"]
        case operator:
            return operator == "NotIn" and labels.get(asked["key"]) not in asked["values"]


@pytest.mark.parametrize("case", CASES)
def test_hooks_clean_up_after_themselves(case: str) -> None:
    for each in rendered(case):
        notes = each["metadata"].get("annotations", {})
        if "helm.sh/hook" in notes:
            assert set(notes["helm.sh/hook"].split(",")) <= HOOKS
            assert "before-hook-creation" in notes["helm.sh/hook-delete-policy"]
        if each["kind"] == "Job":
            assert each["spec"]["activeDeadlineSeconds"], "it could run for ever"
            assert "helm.sh/hook" in notes, "a Job cannot be changed by an upgrade"


def test_without_values_of_their_own_no_feature_flag_is_needed(known, schemas: Schemas) -> None:
    """Knative refuses affinity and the like unless it was told to take them."""
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
        for name in ("affinity", "nodeselector", "tolerations", "topologyspreadconstraints")
    }


@pytest.mark.parametrize("case", CASES)
def test_annotations_for_autoscaling_are_known(known, case: str) -> None:
    """Of one that it does not know, Knative says nothing."""
    (source,) = (each for each in known[1] if each["metadata"]["name"] == "register.go")
    keys = set(re.findall(r'GroupName \+ "/([a-z-]+)"', source["text"]))
    assert {"min-scale", "target-burst-capacity", "scale-down-delay"} <= keys
    for each in rendered(case):
        for pod in pods(each):
            for name in pod["metadata"].get("annotations", {}):
                group, _, key = name.partition("/")
                assert group != "autoscaling.knative.dev" or key in keys, name


@pytest.mark.parametrize("case", CASES)
def test_no_secret_is_in_sight(case: str) -> None:
    """What is secret comes out of Secrets, and stands nowhere else."""
    for each in rendered(case):
        for pod in pods(each):
            for container in containers(pod):
                for name, value in environment(container).items():
                    assert value is None or not re.search("SECRET_KEY|ACCESS_KEY|PASSWORD", name)
        if each["kind"] != "Secret":
            assert "stampede-local" not in json.dumps(each), "the key of ci/minimal.yaml"
