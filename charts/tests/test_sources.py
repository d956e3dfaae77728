"""Sources: what runs them, how many there are, and what scales them."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendering import (
    CASES,
    CHART,
    ROOT,
    Object,
    containers,
    environment,
    objects,
    pods,
    rendered,
    sources,
    template,
)

Known = tuple[dict[str, Any], list[dict[str, Any]]]
TABLES = ("cutouts", "lightcurves")
MINIMAL = "--values", CHART / "ci" / "minimal.yaml"
SOURCE = '"bootstrapServers": ["kafka:9092"], "topics": ["a"]'
INSIDE = "night-bursts"  # the source with the function in its pods
SASL = '"sasl": {"existingSecret": "s"}'


def scaling(kind: str, name: str) -> Any:
    """The spec of an object of `ci/scaling.yaml`."""
    return objects("scaling", kind)[f"night-{name}"]["spec"]


@pytest.mark.parametrize("case", CASES)
def test_no_source_has_a_sink_binding(case: str) -> None:
    """It binds one sink, and would set K_SINK: a source has a sink for each function."""
    bound = {each["spec"]["subject"]["name"] for each in objects(case, "SinkBinding").values()}
    assert not bound & sources(case).keys()


@pytest.mark.parametrize("case", CASES)
def test_no_object_selects_the_pods_of_another_source(case: str) -> None:
    made = [*sources(case).values()]
    selectors = [each["spec"]["selector"]["matchLabels"] for each in made]
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in made]
    for mine, selector in enumerate(selectors):
        matching = [at for at, each in enumerate(labels) if selector.items() <= each.items()]
        assert matching == [mine]
    budgets = objects(case, "PodDisruptionBudget")
    for name, each in sources(case).items():
        if name in budgets:
            assert budgets[name]["spec"]["selector"] == each["spec"]["selector"]


def test_each_source_has_a_budget_and_spreads_over_nodes() -> None:
    budgets = objects("scaling", "PodDisruptionBudget")
    assert sources("scaling").keys() <= budgets.keys()
    for each in sources("scaling").values():
        (spread,) = each["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert spread["topologyKey"] == "kubernetes.io/hostname"
        assert spread["labelSelector"] == each["spec"]["selector"]
    for each in sources("full").values():  # the values say otherwise
        (spread,) = each["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert spread["topologyKey"] == "topology.kubernetes.io/zone"


def test_autoscaling_leaves_the_number_of_pods_to_keda() -> None:
    assert "replicas" not in scaling("Deployment", "lsst")
    spec = scaling("ScaledObject", "lsst")
    assert spec["scaleTargetRef"] == {"name": "night-lsst"}
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 8)
    (trigger,) = spec["triggers"]
    asked = trigger["metadata"]
    (container,) = containers(scaling("Deployment", "lsst")["template"])
    variables = environment(container)
    assert asked["consumerGroup"] == variables["STAMPEDE_GROUP"]
    assert asked["bootstrapServers"] == variables["STAMPEDE_KAFKA"]
    assert asked["topic"] == variables["STAMPEDE_TOPICS"]
    assert asked["lagThreshold"] == "1000"
    assert (asked["sasl"], asked["tls"]) == ("scram_sha512", "enable")
    # Idle pods would be more than there are partitions.
    assert asked.get("allowIdleConsumers", "false") == "false"
    assert trigger["authenticationRef"] == {"name": "night-lsst"}
    login = scaling("TriggerAuthentication", "lsst")["secretTargetRef"]
    assert {each["parameter"]: (each["name"], each["key"]) for each in login} == {
        "ca": ("kafka-ca", "ca.crt"),
        "cert": ("kafka-client", "tls.crt"),
        "key": ("kafka-client", "tls.key"),
        "username": ("kafka-user", "user"),
        "password": ("kafka-user", "password"),
    }


def test_keda_knows_all_fields_of_its_trigger(known: Known) -> None:
    """It ignores unknown ones silently, and has them in two places: trigger and Secret."""
    (source,) = (each for each in known[1] if each["metadata"]["name"] == "kafka_scaler.go")
    fields = re.findall(
        r'`keda:"name=(\w+),order=([\w;]+)(?:,[^"]*?enum=([\w;]+))?', source["text"]
    )
    places = {name: set(order.split(";")) for name, order, _ in fields}
    values = {name: enum.split(";") for name, _, enum in fields if enum}
    assert {"lagThreshold", "excludePersistentLag", "username"} <= places.keys()
    for each in objects("scaling", "ScaledObject").values():
        for trigger in each["spec"]["triggers"]:
            for name, value in trigger["metadata"].items():
                assert "triggerMetadata" in places[name], name
                assert value in values.get(name, [value]), name
    for each in objects("scaling", "TriggerAuthentication").values():
        for reference in each["spec"]["secretTargetRef"]:
            assert "authParams" in places[reference["parameter"]], reference


def test_each_topic_has_a_trigger_of_its_own() -> None:
    """Without a topic KEDA counts the lag of all topics until the group has committed something."""
    triggers = scaling("ScaledObject", "ztf")["triggers"]
    asked = [each["metadata"] for each in triggers]
    assert [each["topic"] for each in asked] == ["ztf-alerts", "ztf-programid2"]
    assert {each["lagThreshold"] for each in asked} == {"500"}
    assert all("authenticationRef" not in each for each in triggers)
    assert "night-ztf" not in objects("scaling", "TriggerAuthentication")
    for each in objects("scaling", "ScaledObject").values():
        assert all("topic" in trigger["metadata"] for trigger in each["spec"]["triggers"])


def test_each_source_knows_what_the_others_read() -> None:
    """Else it would warn of topics that are like its own, and that another source reads."""
    read: dict[str, set[str]] = {}
    for each in sources("scaling").values():
        (container,) = containers(each["spec"]["template"])
        variables = environment(container)
        own = set(variables["STAMPEDE_TOPICS"].split(","))
        others = set(variables["STAMPEDE_OTHER_TOPICS"].split(","))
        assert not own & others
        read[each["metadata"]["labels"]["stampede/source"]] = own | others
    assert len(read) > 2
    assert len({frozenset(each) for each in read.values()}) == 1


def test_static_membership_needs_names_that_last() -> None:
    """The name of a pod of a StatefulSet outlives the pod; that of a Deployment's pod does not."""
    made = sources("scaling")
    for name, each in made.items():
        (container,) = each["spec"]["template"]["spec"]["containers"]
        (found,) = [v for v in container["env"] if v["name"] == "STAMPEDE_GROUP_INSTANCE_ID"] or [
            None
        ]
        if name == "night-old":
            assert (each["kind"], each["spec"]["replicas"]) == ("StatefulSet", 3)
            assert found == {
                "name": "STAMPEDE_GROUP_INSTANCE_ID",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
            }
        else:
            assert (each["kind"], found) == ("Deployment", None)


def test_extensions_of_the_values_are_set_by_either_kind() -> None:
    set_by = {
        name: environment(container).get("STAMPEDE_CE_OVERRIDES")
        for name in ("lsst", "ztf")
        for container in containers(scaling("Deployment", name)["template"])
    }
    assert set_by == {"lsst": '{"extensions":{"site":"chile"}}', "ztf": None}
    for function in TABLES:
        extensions = scaling("KafkaSource", f"knative-{function}")["ceOverrides"]["extensions"]
        assert extensions["site"] == "chile"
        assert extensions["topicid"] == "2026"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--set", "oidc.mode=required"),
        ("--set", "store.caConfigMap=ca", "--set", "store.secrets.alerts=own"),
    ],
)
def test_a_function_in_the_pods_of_a_source_is_as_one_of_a_knative_service(
    arguments: tuple[str, ...],
) -> None:
    """It reads Kafka itself, in the place of the source's own process."""
    if "store.secrets.alerts=own" in arguments:
        arguments = (*arguments, "--set", "store.secrets.cutouts=own")
    made = {
        (each["kind"], each["metadata"]["name"]): each for each in rendered("scaling", *arguments)
    }
    pod = made["Deployment", INSIDE]["spec"]["template"]
    (inside,) = containers(pod)
    service = made["Service", "night-cutouts"]["spec"]["template"]["spec"]
    (behind,) = service["containers"]
    mine, other = environment(inside), environment(behind)
    assert other.pop("STAMPEDE_METRICS_PORT") == "9400"
    assert other.items() <= mine.items()
    same = ("image", "securityContext")
    assert [inside[each] for each in same] == [behind[each] for each in same]
    assert (inside["name"], inside["args"]) == ("alerts", ["serve", "alerts"])
    assert (
        inside["resources"]
        == yaml.safe_load((CHART / "values.yaml").read_text())["source"]["alerts"]["resources"]
    )
    assert all(each in inside["volumeMounts"] for each in behind["volumeMounts"])
    assert all(each in pod["spec"]["volumes"] for each in service["volumes"])
    assert mine["STAMPEDE_FROM_KAFKA"] == "true"
    assert "STAMPEDE_FROM_KAFKA" not in other
    assert mine["STAMPEDE_CE_OVERRIDES"] == '{"extensions":{"site":"chile"}}'
    assert "STAMPEDE_SINKS" not in mine


@pytest.mark.parametrize("arguments", [(), ("--set", "oidc.mode=required")])
def test_a_function_in_the_pods_of_a_source_reads_what_the_source_did(
    arguments: tuple[str, ...],
) -> None:
    """And sends dead letters with the same proof."""
    without = ("--set", "sources.bursts.functionInPod=false")
    before, after = (
        {
            each["metadata"]["name"]: each["spec"]["template"]
            for each in rendered("scaling", *arguments, *more)
            if each["kind"] == "Deployment"
        }
        for more in (without, ())
    )
    (source,), (inside,) = containers(before[INSIDE]), containers(after[INSIDE])
    variables = environment(source)
    del variables["STAMPEDE_SINKS"]
    assert variables.items() <= environment(inside).items()
    assert [inside[f"{each}Probe"] for each in ("readiness", "liveness")] == [
        source[f"{each}Probe"] for each in ("readiness", "liveness")
    ]
    mounted = {each["mountPath"]: each for each in inside["volumeMounts"]}
    assert all(mounted[each["mountPath"]] == each for each in source["volumeMounts"])


def test_a_setting_of_a_function_comes_before_one_of_its_source() -> None:
    given = ("--set", "source.alerts.settings.linger_ms=1", "--set")
    given = (*given, "sources.bursts.settings.linger_ms=2,sources.bursts.settings.batch_alerts=3")
    (pod,) = (
        each["spec"]["template"]
        for each in rendered("scaling", *given)
        if (each["kind"], each["metadata"]["name"]) == ("Deployment", INSIDE)
    )
    variables = environment(containers(pod)[0])
    assert variables["STAMPEDE_LINGER_MS"] == "1"
    assert variables["STAMPEDE_BATCH_ALERTS"] == "3"


@pytest.mark.parametrize("case", CASES)
def test_no_container_has_a_variable_twice(case: str) -> None:
    """Kubernetes refuses it, if it comes from server-side apply."""
    for arguments in ((), ("--set", "oidc.mode=required")):
        for each in rendered(case, *arguments):
            for container in (c for pod in pods(each) for c in containers(pod)):
                names = [variable["name"] for variable in container.get("env", ())]
                assert len(names) == len(set(names)), each["metadata"]["name"]


def test_each_volume_of_a_source_is_mounted_and_has_a_name_of_its_own() -> None:
    for each in sources("scaling").values():
        pod = each["spec"]["template"]
        names = [volume["name"] for volume in pod["spec"]["volumes"]]
        mounted = [mount["name"] for inner in containers(pod) for mount in inner["volumeMounts"]]
        assert len(names) == len(set(names))
        assert set(names) == set(mounted)
        assert len(mounted) == len(set(mounted)), "two containers share a volume"


def test_a_function_in_the_pods_of_a_source_has_its_own_labels_and_place() -> None:
    fields = {"podLabels": {"team": "sky"}, "nodeSelector": {"disk": "fast"}}
    made = rendered("scaling", "--set-json", f"source.alerts={json.dumps(fields)}")
    found = {
        each["metadata"]["name"]: each["spec"]["template"]
        for each in made
        if each["kind"] == "Deployment"
    }
    for name in (INSIDE, "night-ztf"):
        pod = found[name]
        assert ("team" in pod["metadata"]["labels"]) == (name == INSIDE)
        assert ("nodeSelector" in pod["spec"]) == (name == INSIDE)
        assert "topologySpreadConstraints" in pod["spec"]


def test_a_kafka_source_has_the_annotations_of_knative_s_autoscaler() -> None:
    for function in TABLES:
        made: Object = objects("scaling", "KafkaSource")[f"night-knative-{function}"]
        prefix = "autoscaling.eventing.knative.dev/"
        assert made["metadata"]["annotations"] == {
            f"{prefix}class": "keda.autoscaling.knative.dev",
            f"{prefix}min-scale": "1",
            f"{prefix}max-scale": "4",
            f"{prefix}lag-threshold": "1000",
        }


def test_only_the_doctor_knows_how_many_sources_there_are() -> None:
    """Any other pod would be replaced when the number changes."""
    found = {
        (each["metadata"]["name"], container["name"]): count
        for each in rendered("scaling")
        for pod in pods(each)
        for container in containers(pod)
        if (count := environment(container).get("STAMPEDE_SOURCE_REPLICAS"))
    }
    least = {"lsst": "1", "ztf": "2", "bursts": "1", "old": "3", "knative": "1"}
    before = {("night-doctor", name): count for name, count in least.items()}
    after = {(f"night-test-doctor-{name}", "doctor"): count for name, count in least.items()}
    assert found == before | after


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ('"replicas": 2, "autoscaling": {"max": 3}', "replicas and autoscaling are both set"),
        ('"autoscaling": {"min": 4, "max": 3}', "max is 3, less than min"),
        (f'"autoscaling": {{"max": 3}}, {SASL}', "autoscaling needs sasl.mechanism"),
        ('"autoscaling": {"max": 3}, "staticMembership": true', "staticMembership and autoscaling"),
        ('"kind": "kafka", "epoch": "1", "staticMembership": true', "kind: container only"),
        ('"kind": "kafka", "epoch": "1", "functionInPod": true', "kind: container only"),
        ('"autoscaling": {"min": 1}', "/sources/a/autoscaling"),
        ('"autoscaling": {"min": 0, "max": 1}', "/sources/a/autoscaling/min"),
        ('"ceOverrides": {"topicid": "1"}', "invalid propertyName 'topicid'"),
        ('"ceOverrides": {"Site": "1"}', "invalid propertyName 'Site'"),
    ],
)
def test_the_error_names_what_cannot_be(fields: str, error: str) -> None:
    done = template(*MINIMAL, "--set-json", f'sources={{"a": {{{SOURCE}, {fields}}}}}')
    assert done.returncode
    assert error in done.stderr


def test_the_name_of_a_statefulset_is_short() -> None:
    """Its pods have a label with this name and a hash of 10 letters; 63 are allowed."""
    line = f'sources={{"a-long-nam": {{{SOURCE}, "staticMembership": true}}}}'
    long = ("--set", f"fullnameOverride={'a' * 30}")
    assert "too long for a StatefulSet" in template(*MINIMAL, "--set-json", line, *long).stderr
    assert template(*MINIMAL, "--set-json", line).returncode == 0


# As in eventing-kafka-broker 1.20, shortened. A webhook refuses another `_example`.
DATA_PLANE = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: config-kafka-source-data-plane, namespace: knative-eventing}
data:
  _example: |
    config-kafka-source-consumer.properties: |
      max.poll.records=50
    config-kafka-source-webclient.properties: |
      idleTimeout=10000
  config-kafka-source-consumer.properties: |
    cloudevent.invalid.transformer.enabled=true
    max.partition.fetch.bytes=65536
    max.poll.interval.ms=300000
    max.poll.records=50
  config-kafka-source-webclient.properties: |
    idleTimeout=10000
    maxPoolSize=100
"""


def test_the_documented_command_changes_the_settings_of_a_kafka_source(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "kafka-source.md").read_text()
    (command,) = re.findall(r"^\$ (sed .+)$", page, re.MULTILINE)
    file = tmp_path / "kafka-source.yaml"
    file.write_text(DATA_PLANE)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    before, after = yaml.safe_load(DATA_PLANE)["data"], yaml.safe_load(file.read_text())["data"]
    assert after["_example"] == before["_example"]
    assert after["config-kafka-source-consumer.properties"].splitlines() == [
        "cloudevent.invalid.transformer.enabled=true",
        "max.partition.fetch.bytes=8388608",
        "max.poll.interval.ms=300000",
        "max.poll.records=300",
    ]
    assert after["config-kafka-source-webclient.properties"].splitlines() == [
        "idleTimeout=310000",
        "maxPoolSize=600",
    ]
