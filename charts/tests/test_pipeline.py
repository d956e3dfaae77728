"""The chart runs the same system as `stampede up`: functions, settings, Triggers, deliveries."""

import json
import re

import pytest
import yaml
from rendering import (
    CASES,
    CHART,
    NAMESPACE,
    ROOT,
    Object,
    containers,
    environment,
    objects,
    pods,
    rendered,
    sources,
)

from stampede.config.settings import Settings
from stampede.events import ALERT_FUNCTIONS, BOTH_TABLES
from stampede.handlers.apps import APPS

# The chart uses Knative's Broker instead of the function; `bulk` is a second `read`.
FUNCTIONS = (APPS.keys() - {"broker", BOTH_TABLES}) | {"bulk"}
SITES = {case: 2 if case in ("full", "site") else 1 for case in CASES}


def fullname(case: str) -> str:
    return (values(case)).get("fullnameOverride") or "night"


def values(case: str) -> Object:
    return yaml.safe_load((CHART / "ci" / f"{case}.yaml").read_text())


def functions(case: str) -> dict[str, Object]:
    """The Knative Services, by function."""
    return {
        name.removeprefix(f"{fullname(case)}-"): each
        for name, each in objects(case, "Service").items()
        if each["apiVersion"] == "serving.knative.dev/v1"
    }


def test_the_chart_has_all_functions() -> None:
    assert functions("full").keys() == FUNCTIONS
    assert functions("minimal").keys() == FUNCTIONS - {"replicate", "publish"}
    assert yaml.safe_load((CHART / "values.yaml").read_text())["functions"].keys() == FUNCTIONS


@pytest.mark.parametrize("case", CASES)
def test_a_service_runs_the_function_of_its_name(case: str) -> None:
    for name, service in functions(case).items():
        (container,) = service["spec"]["template"]["spec"]["containers"]
        assert container["args"] == ["serve", "read" if name == "bulk" else name]
        assert environment(container)["STAMPEDE_HOST"] == "0.0.0.0"
        assert environment(container)["STAMPEDE_PORT"] == str(
            container["ports"][0]["containerPort"]
        )


@pytest.mark.parametrize("case", CASES)
def test_only_read_and_bulk_are_public(case: str) -> None:
    public = {
        name
        for name, service in functions(case).items()
        if service["metadata"]["labels"].get("networking.knative.dev/visibility") != "cluster-local"
    }
    enabled = {"notifications"} if values(case).get("functions", {}).get("notifications") else set()
    assert public == {"read", "bulk"} | enabled


@pytest.mark.parametrize("case", CASES)
def test_every_setting_exists_and_is_valid(case: str) -> None:
    """Build `Settings` from the environment as the program does; reject unknown names."""
    for each in rendered(case):
        for pod in pods(each):
            for container in containers(pod):
                check(environment(container))


def check(variables: dict[str, str | None]) -> None:
    known = {f"STAMPEDE_{name.upper()}" for name in Settings.model_fields}
    environment = {name: value or "secret" for name, value in variables.items()}
    for name in environment:
        assert not name.startswith("STAMPEDE_") or name in known, name
    parsed = {}
    for name, value in environment.items():
        key = name.removeprefix("STAMPEDE_").lower()
        if name in known:
            complex_kind = Settings.model_fields[key].annotation not in (str, int, float)
            parsed[key] = json.loads(value) if complex_kind and value[:1] in "{[" else value
    Settings.model_validate(parsed)


@pytest.mark.parametrize("case", CASES)
def test_tokens_are_mounted_where_they_are_read(case: str) -> None:
    """As a directory: Kubernetes does not renew a file that is mounted alone."""
    secret = values(case).get("tokens", {}).get("existingSecret")
    for name, service in functions(case).items():
        spec = service["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        path = environment(container).get("STAMPEDE_TOKENS")
        assert bool(path) == (bool(secret) and name in ("read", "bulk"))
        if path:
            (mount,) = (m for m in container["volumeMounts"] if m["name"] == "tokens")
            (volume,) = (v for v in spec["volumes"] if v["name"] == "tokens")
            assert volume["secret"]["secretName"] == secret
            assert path == f"{mount['mountPath']}/tokens"
            assert "subPath" not in mount


@pytest.mark.parametrize("case", CASES)
def test_only_reconcile_has_the_key_of_proofs(case: str) -> None:
    secret = values(case).get("proofs", {}).get("existingSecret")
    for name, service in functions(case).items():
        spec = service["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        path = environment(container).get("STAMPEDE_PROOF_KEY")
        assert bool(path) == (bool(secret) and name == "reconcile")
        mounted = [m["mountPath"] for m in container["volumeMounts"] if m["name"] == "proofs"]
        assert mounted == (["/etc/stampede/proofs"] if path else [])
        if path:
            assert path == f"{mounted[0]}/proof.pem"
            (volume,) = (v for v in spec["volumes"] if v["name"] == "proofs")
            assert volume["secret"]["secretName"] == secret


@pytest.mark.parametrize("case", CASES)
def test_keys_are_files_that_follow_their_secret(case: str) -> None:
    """As directories, and in no environment: Kubernetes renews neither a file alone nor that."""
    files = {
        "STAMPEDE_KEYS": ["access-key", "secret-key"],
        "STAMPEDE_REPLICA_KEYS": ["access-key", "secret-key"],
        "STAMPEDE_KAFKA_KEYS": ["user", "password", "type"],
    }
    found = set()
    for each in rendered(case):
        for pod in pods(each):
            for container in containers(pod):
                given = {v["name"] for v in container.get("env", ()) if "valueFrom" in v}
                assert not [name for name in given if "SECRET" in name or "PASSWORD" in name]
                for name, path in environment(container).items():
                    if name not in files:
                        continue
                    (mount,) = (m for m in container["volumeMounts"] if m["mountPath"] == path)
                    (volume,) = (v for v in pod["spec"]["volumes"] if v["name"] == mount["name"])
                    assert "subPath" not in mount
                    items = volume["secret"]["items"]
                    assert [item["path"] for item in items] == files[name]
                    assert [item["key"] for item in items] == files[name]
                    found.add(name)
                    optional = volume["secret"].get("optional", False)
                    component = each["metadata"]["labels"]["app.kubernetes.io/component"]
                    assert optional == (component == "doctor")
    assert "STAMPEDE_KEYS" in found


def asks(*settings: str) -> bool:
    """Whether `read` asks a Kafka about its ledger."""
    made = rendered("minimal", *(word for each in settings for word in ("--set", each)))
    (read,) = (
        each
        for each in made
        if each["kind"] == "Service" and each["metadata"]["name"].endswith("-read")
    )
    (container,) = read["spec"]["template"]["spec"]["containers"]
    return "STAMPEDE_TOPICS" in environment(container)


def test_read_asks_the_only_kafka_about_its_ledger_unless_that_wants_keys() -> None:
    one, more = (
        f"sources.{name}.bootstrapServers={{kafka:9092}},sources.{name}.topics={{{name}}}"
        for name in ("one", "more")
    )
    assert not asks()
    assert asks(one)
    assert not asks(one, "ledger.source=none")
    assert not asks(one, "sources.one.sasl.existingSecret=login")
    assert not asks(one, "sources.one.tls.enabled=true,sources.one.tls.clientSecret=client")
    assert asks(one, "sources.one.tls.enabled=true")
    assert not asks(one, more)
    assert asks(one, more, "ledger.source=more")


def test_the_login_of_the_registry_is_where_alerts_are_decoded() -> None:
    """As directories, which follow Secret and ConfigMap."""
    paths = {
        "STAMPEDE_SCHEMA_REGISTRY_KEYS": ("/etc/stampede/registry-keys", "registry-login"),
        "STAMPEDE_SCHEMA_REGISTRY_CA": ("/etc/stampede/registry", "registry-ca"),
    }
    having = set()
    for each in rendered("full"):
        for pod in pods(each):
            for container in containers(pod):
                for name in environment(container).keys() & paths.keys():
                    path, source = paths[name]
                    assert environment(container)[name] in (path, f"{path}/ca.crt")
                    (mount,) = (m for m in container["volumeMounts"] if m["mountPath"] == path)
                    (volume,) = (v for v in pod["spec"]["volumes"] if v["name"] == mount["name"])
                    given = volume.get("secret", {}).get("secretName")
                    assert source == (given or volume["configMap"]["name"])
                    having.add(each["metadata"]["labels"]["app.kubernetes.io/component"])
    assert having >= {"read", "cutouts", "lightcurves", "doctor", "toolbox", "test"}
    assert not having & {"notifications", "replicate", "setup"}
    assert "STAMPEDE_SCHEMA_REGISTRY_KEYS" not in str(rendered("minimal"))


def test_each_function_has_the_keys_of_its_user() -> None:
    def secret(name: str, volume: str) -> str:
        volumes = functions("full")[name]["spec"]["template"]["spec"]["volumes"]
        (found,) = (each["secret"]["secretName"] for each in volumes if each["name"] == volume)
        return found

    assert secret("read", "store-keys") == secret("bulk", "store-keys") == "alerts-s3-read"
    assert secret("thumbnails", "store-keys") == "alerts-s3-thumbnails"
    assert secret("cutouts", "store-keys") == secret("replicate", "store-keys") == "alerts-s3"
    assert secret("replicate", "replica-keys") == "alerts-s3-second"
    volumes = functions("full")["notifications"]["spec"]["template"]["spec"]["volumes"]
    assert "store-keys" not in [each["name"] for each in volumes]


@pytest.mark.parametrize("case", CASES)
def test_a_worker_has_memory_for_its_spool(case: str) -> None:
    """Files in the spool count as the pod's memory."""
    for name in ALERT_FUNCTIONS:
        spec = functions(case)[name]["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        spool = environment(container)["STAMPEDE_SPOOL"]
        (mount,) = (m for m in container["volumeMounts"] if m["mountPath"] == spool)
        (volume,) = (v for v in spec["volumes"] if v["name"] == mount["name"])
        assert volume["emptyDir"]["medium"] == "Memory"
        limit = quantity(container["resources"]["limits"]["memory"])
        assert quantity(volume["emptyDir"]["sizeLimit"]) < limit


def quantity(text: str) -> int:
    """Bytes of a Kubernetes quantity."""
    match = re.fullmatch(r"([0-9]+)(Ki|Mi|Gi|Ti)?", text)
    assert match, text
    number, unit = match.groups()
    return int(number) * 1024 ** (["", "Ki", "Mi", "Gi", "Ti"].index(unit or ""))


@pytest.mark.parametrize("directory", ["charts/stampede/files", "functions/stampede/events/broker"])
def test_copies_of_triggers_are_current(directory: str) -> None:
    """Chart and Python package need copies: packages do not keep links to files outside."""
    wanted = (ROOT / "eventing" / "triggers.yaml").read_bytes()
    assert (ROOT / directory / "triggers.yaml").read_bytes() == wanted, (
        "run `make format` to copy triggers.yaml"
    )


def test_the_copy_of_event_types_is_current() -> None:
    wanted = (ROOT / "eventing" / "eventtypes.yaml").read_bytes()
    assert (CHART / "files" / "eventtypes.yaml").read_bytes() == wanted, "run `make format`"


@pytest.mark.parametrize("case", CASES)
def test_triggers_are_those_of_eventing_and_of_the_values(case: str) -> None:
    name, broker = fullname(case), values(case).get("broker", {}).get("name") or fullname(case)
    existing = functions(case)
    expected = {}
    for trigger in yaml.safe_load_all((ROOT / "eventing" / "triggers.yaml").read_text()):
        function = trigger["spec"]["subscriber"]["ref"]["name"].removeprefix("stampede-")
        trigger["spec"]["broker"] = broker
        trigger["spec"]["subscriber"]["ref"]["name"] = f"{name}-{function}"
        if "oidc" in values(case):
            trigger["spec"]["subscriber"]["audience"] = f"stampede/{NAMESPACE}/{name}"
        if function in existing:
            expected[trigger["metadata"]["name"].replace("stampede", name, 1)] = trigger["spec"]
    for own, spec in values(case).get("triggers", {}).items():
        expected[f"{name}-{own}"] = {"broker": broker} | spec
    actual = {name: each["spec"] for name, each in objects(case, "Trigger").items()}
    assert actual == expected


@pytest.mark.parametrize("case", CASES)
def test_each_alert_function_has_a_source_for_every_topic(case: str) -> None:
    wanted = {
        (function, topic)
        for source in values(case).get("sources", {}).values()
        for function in ALERT_FUNCTIONS
        for topic in source["topics"]
    }
    covered: set[tuple[str, str]] = set()
    groups: dict[tuple[str, ...], set[str]] = {}
    for each in [*sources(case).values(), *objects(case, "KafkaSource").values()]:
        topics, group = topics_and_group(each)
        fed = functions_of(case, each)
        covered |= {(function, topic) for topic in topics for function in fed}
        groups.setdefault((*fed, *topics), set()).add(group)
    assert covered == wanted
    # Each source has its own group, which only its replicas share; a KafkaSource for each function.
    assert all(len(each) == 1 for each in groups.values())
    assert len({group for each in groups.values() for group in each}) == len(groups)


def functions_of(case: str, source: Object) -> list[str]:
    """The functions that a source of either kind sends alerts to, or has in its pods."""
    begin = f"{fullname(case)}-"
    if sink := source["spec"].get("sink"):
        return [sink["ref"]["name"].removeprefix(begin)]
    (container,) = (container for pod in pods(source) for container in containers(pod))
    if sinks := environment(container).get("STAMPEDE_SINKS"):
        urls = json.loads(sinks)
        assert urls == {
            table: f"http://{begin}{function}.sky.svc"
            for function, table in ALERT_FUNCTIONS.items()
        }
        return list(ALERT_FUNCTIONS)
    assert container["name"] == BOTH_TABLES
    return list(ALERT_FUNCTIONS)


def topics_and_group(source: Object) -> tuple[list[str], str]:
    """Topics and consumer group of a source of either kind."""
    spec = source["spec"]
    if source["kind"] == "KafkaSource":
        return spec["topics"], spec["consumerGroup"]
    (container,) = spec["template"]["spec"]["containers"]
    variables = environment(container)
    topics, group = variables["STAMPEDE_TOPICS"], variables["STAMPEDE_GROUP"]
    assert topics
    assert group
    return topics.split(","), group


def test_a_kafka_source_sets_all_fields_of_its_delivery() -> None:
    """With only a dead-letter sink there would be no retry. By default, delivery is ordered."""
    made = objects("kafkasource", "KafkaSource")
    assert made
    for source in made.values():
        spec = source["spec"]
        assert (spec["ordering"], spec["initialOffset"]) == ("unordered", "earliest")
        delivery = spec["delivery"]
        assert delivery["retry"] >= 10
        assert delivery["backoffPolicy"] == "exponential"
        assert re.fullmatch(r"PT[0-9.]+S", delivery["backoffDelay"])
        function = spec["sink"]["ref"]["name"].removeprefix("night-")
        assert delivery["deadLetterSink"]["ref"]["name"] == "night-deadletters"
        assert delivery["deadLetterSink"]["uri"] == f"/{ALERT_FUNCTIONS[function]}"


def test_an_epoch_is_sent_and_expected() -> None:
    """A KafkaSource does not know Kafka's id of a topic; `audit` must expect what it sends."""
    for source in objects("kafkasource", "KafkaSource").values():
        assert source["spec"]["ceOverrides"]["extensions"]["topicid"] == "2026"
        group = source["spec"]["consumerGroup"]
        toolbox = objects("kafkasource", "Deployment")["night-toolbox"]
        (container,) = toolbox["spec"]["template"]["spec"]["containers"]
        variables = environment(container)
        assert variables["STAMPEDE_TOPIC_EPOCH"] == "2026"
        assert group.rpartition("-")[0] == variables["STAMPEDE_GROUP"]


def test_read_asks_one_kafka_and_the_others_none() -> None:
    """It has the settings of the toolbox, and the certificates to reach that Kafka."""
    toolbox = objects("full", "Deployment")["alerts-toolbox"]
    lsst = next(c for c in toolbox["spec"]["template"]["spec"]["containers"] if c["name"] == "lsst")
    names = ("KAFKA", "TOPICS", "GROUP", "KAFKA_OPTIONS")
    for name, service in functions("full").items():
        spec = service["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        variables = environment(container)
        mounts = {each["mountPath"] for each in container["volumeMounts"]}
        assert {each["name"] for each in container["volumeMounts"]} <= {
            each["name"] for each in spec["volumes"]
        }
        if name == "read":
            for variable in names:
                key = f"STAMPEDE_{variable}"
                assert variables[key] == environment(lsst)[key]
            assert {"/etc/stampede/kafka-ca", "/etc/stampede/kafka-client"} <= mounts
        else:
            assert "STAMPEDE_TOPICS" not in variables, name
            assert not any("kafka" in mount for mount in mounts)
    for service in functions("minimal").values():
        (container,) = service["spec"]["template"]["spec"]["containers"]
        assert "STAMPEDE_KAFKA" not in environment(container)


def test_a_source_sends_dead_letters_to_the_tables_of_both_functions() -> None:
    """It adds the name of the table itself."""
    made = sources("full")
    assert made
    for source in made.values():
        (container,) = source["spec"]["template"]["spec"]["containers"]
        letters = environment(container)["STAMPEDE_DEAD_LETTER_SINK"]
        assert letters == "http://alerts-deadletters.sky.svc"


@pytest.mark.parametrize("case", CASES)
def test_senders_of_events_are_bound_to_the_broker(case: str) -> None:
    broker = values(case).get("broker", {}).get("name") or fullname(case)
    bound = {
        each["spec"]["subject"]["name"].removeprefix(f"{fullname(case)}-")
        for each in objects(case, "SinkBinding").values()
        if each["spec"]["sink"]["ref"]["name"] == broker
    }
    assert bound >= {"notifications", "reconcile"}


@pytest.mark.parametrize("case", CASES)
def test_timers_trigger_passes(case: str) -> None:
    triggered = {
        each["spec"]["sink"]["ref"]["name"].removeprefix(f"{fullname(case)}-")
        for each in objects(case, "PingSource").values()
    }
    assert triggered == {"compact", "reconcile", "scrub"} | (
        {"publish"} if case == "full" else set()
    )


def test_publish_has_space_for_its_temporary_files() -> None:
    sizes = {
        name: volume["emptyDir"]["sizeLimit"]
        for name, service in functions("full").items()
        for volume in service["spec"]["template"]["spec"]["volumes"]
        if volume["name"] == "tmp"
    }
    assert sizes.pop("publish") == "16Gi"
    assert {*sizes.values()} == {"64Mi"}


@pytest.mark.parametrize("case", CASES)
def test_the_relay_always_accepts_connections(case: str) -> None:
    """After a refused connection Ceph's RGW may stop sending notifications."""
    annotations = functions(case)["notifications"]["spec"]["template"]["metadata"]["annotations"]
    assert int(annotations["autoscaling.knative.dev/min-scale"]) >= 1
    assert annotations["autoscaling.knative.dev/target-burst-capacity"] == "-1"


@pytest.mark.parametrize("case", CASES)
def test_alerts_bypass_the_activator(case: str) -> None:
    for name in ALERT_FUNCTIONS:
        annotations = functions(case)[name]["spec"]["template"]["metadata"]["annotations"]
        assert int(annotations["autoscaling.knative.dev/min-scale"]) >= 1
        assert annotations["autoscaling.knative.dev/target-burst-capacity"] == "0"


@pytest.mark.parametrize("case", CASES)
def test_hooks_set_up_the_store_and_undo_that(case: str) -> None:
    jobs = {
        each["metadata"]["annotations"]["helm.sh/hook"]: containers(next(pods(each)))
        for each in objects(case, "Job").values()
    }
    commands = {
        hook: " ".join([*each[0].get("command", ()), *each[0].get("args", ())])
        for hook, each in jobs.items()
    }
    assert jobs.keys() == {"pre-install,pre-upgrade", "post-install,post-upgrade", "pre-delete"}
    assert "setup" in commands["post-install,post-upgrade"]
    assert "--remove" not in commands["post-install,post-upgrade"]
    assert "setup" in commands["pre-delete"]
    assert "--remove" in commands["pre-delete"]


@pytest.mark.parametrize("case", CASES)
def test_only_writers_of_the_second_site_have_its_keys(case: str) -> None:
    for name, service in functions(case).items():
        (container,) = service["spec"]["template"]["spec"]["containers"]
        knows = "STAMPEDE_REPLICA" in environment(container)
        assert knows == (SITES[case] == 2 and name in ("replicate", "reconcile", "scrub")), name


def doctor(case: str, *arguments: str) -> list[Object]:
    """What Helm makes before an installation, in its order."""
    early = [
        each
        for each in rendered(case, *arguments)
        if each["metadata"].get("annotations", {}).get("helm.sh/hook") == "pre-install,pre-upgrade"
    ]
    return sorted(
        early, key=lambda each: int(each["metadata"]["annotations"].get("helm.sh/hook-weight", 0))
    )


@pytest.mark.parametrize("case", CASES)
def test_the_doctor_needs_nothing_that_the_chart_makes_later(case: str) -> None:
    *secrets, job = doctor(case)
    later = {each["metadata"]["name"] for each in rendered(case)} - {
        each["metadata"]["name"] for each in (*secrets, job)
    }
    (pod,) = pods(job)
    names = {
        variable["valueFrom"]["secretKeyRef"]["name"]
        for container in containers(pod)
        for variable in container["env"]
        if "valueFrom" in variable
    }
    volumes = pod["spec"]["volumes"]
    names |= {each["secret"]["secretName"] for each in volumes if "secret" in each}
    names |= {each["configMap"]["name"] for each in volumes if "configMap" in each}
    assert not {*names, pod["spec"]["serviceAccountName"]} & later
    assert {each["metadata"]["name"] for each in secrets} <= names
    for container in containers(pod):
        assert "stampede doctor --before-install" in container["command"][-1]
        assert environment(container)["STAMPEDE_STORE"]


def test_the_doctor_s_report_is_printed_once_and_a_failed_job_goes() -> None:
    """Status 2 is a finding: a second pod would find it too."""
    *_, job = doctor("minimal")
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [2])
    (container,) = containers(job["spec"]["template"])
    assert "exit 2" in container["command"][-1]
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"  # Kubernetes wants it
    assert job["spec"]["ttlSecondsAfterFinished"] == 3600


def test_the_doctor_can_be_turned_off_and_leaves_releases_that_only_serve_alone() -> None:
    assert doctor("minimal", "--set", "doctor.enabled=false") == []
    assert doctor("minimal", "--set", "doctor=null") == []  # --reuse-values of an older release
    serving = ("read", "bulk")
    names = [name for name in functions("minimal") if name not in serving]
    off = ",".join(f"functions.{name}.enabled=false" for name in names)
    assert doctor("minimal", "--set", off) == []
