"""Tokens of senders: every function that takes events verifies them, and every sender has one."""

import pytest
from rendering import (
    CASES,
    CHART,
    NAMESPACE,
    RELEASE,
    Object,
    containers,
    environment,
    pods,
    rendered,
    template,
)

MODES = ["accepted", "required"]
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:"
NAMES = {"full": "alerts"}  # its fullnameOverride
NEVER = {"read", "bulk"}


def audience(case: str) -> str:
    return f"stampede/{NAMESPACE}/{NAMES.get(case, RELEASE)}"


def made_with(case: str, *sets: str) -> list[Object]:
    return rendered(case, *(word for each in sets for word in ("--set", each)))


def functions(made: list[Object]) -> dict[str, Object]:
    """The pod's template of each function."""
    return {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: each["spec"]["template"]
        for each in made
        if each["apiVersion"] == "serving.knative.dev/v1" and each["kind"] == "Service"
    }


def projected(pod: Object, name: str) -> list[Object]:
    """What a volume is made of; empty if the pod has none of this name, or does not mount it."""
    spec = pod["spec"]
    mounted = {mount["name"] for each in containers(pod) for mount in each.get("volumeMounts", ())}
    found = [each for each in spec.get("volumes", ()) if each["name"] == name]
    return found[0]["projected"]["sources"] if found and name in mounted else []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_every_function_that_takes_events_verifies_tokens(case: str, mode: str) -> None:
    made = functions(made_with(case, f"oidc.mode={mode}"))
    assert len(made.keys() - NEVER) >= 7
    for name, pod in made.items():
        (container,) = containers(pod)
        found = environment(container)
        sources = projected(pod, "issuer")
        if name in NEVER:
            assert not sources
            assert "STAMPEDE_SENDER_ISSUER" not in found
            continue
        assert found["STAMPEDE_SENDER_ISSUER"] == "https://kubernetes.default.svc"
        assert found["STAMPEDE_SENDER_AUDIENCE"] == audience(case)
        first, second, *_ = found["STAMPEDE_SENDER_SUBJECTS"].split(",")
        assert first == ACCOUNT + pod["spec"]["serviceAccountName"]
        assert second == f"{ACCOUNT}{NAMES.get(case, RELEASE)}-*"
        assert found["STAMPEDE_SENDER_ISSUER_CA"] == "/etc/stampede/issuer/ca.crt"
        assert [next(iter(each)) for each in sources] == ["configMap", "serviceAccountToken"]
        assert "audience" not in sources[1]["serviceAccountToken"]  # the API server's own
        only = found.get("STAMPEDE_SENDER_TOKENS_ONLY")
        assert only == ("true" if mode == "required" else None)
        keyed = mode == "accepted" or name == "notifications"
        assert ("STAMPEDE_EVENT_KEY" in found) == keyed, name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_every_sender_has_a_token(case: str, mode: str) -> None:
    made = made_with(case, f"oidc.mode={mode}")
    account = functions(made)["cutouts"]["spec"]["serviceAccountName"]
    senders = 0
    for each in made:
        kind, spec = each["kind"], each.get("spec", {})
        component = each["metadata"]["labels"].get("app.kubernetes.io/component")
        if kind in ("PingSource", "KafkaSource"):
            senders += 1
            assert spec["sink"]["audience"] == audience(case)
            extensions = spec.get("ceOverrides", {}).get("extensions", {})
            # With `gitops` a hook adds it.
            assert ("accesskey" in extensions) == (mode == "accepted" and case != "gitops")
        if kind == "KafkaSource":
            assert spec["delivery"]["deadLetterSink"]["audience"] == audience(case)
        subscriber = spec.get("subscriber", {}).get("ref", {}).get("name", "")
        if kind == "Trigger" and subscriber.startswith(NAMES.get(case, RELEASE)):
            senders += 1
            assert spec["subscriber"]["audience"] == audience(case)
        if kind in ("Deployment", "StatefulSet") and component in ("source", "toolbox"):
            (pod,) = pods(each)
            senders += 1
            for container in pod["spec"]["containers"]:
                found = environment(container)
                assert found["STAMPEDE_SENDER_TOKEN"] == "/etc/stampede/sender/token"
                only = found.get("STAMPEDE_SENDER_TOKENS_ONLY")
                assert only == ("true" if mode == "required" else None)
            (token,) = projected(pod, "sender")
            assert token["serviceAccountToken"]["audience"] == audience(case)
            assert pod["spec"]["serviceAccountName"] == account
    assert senders >= 5


def test_the_key_is_read_by_the_relay_and_what_sets_up_the_store_where_tokens_are_required() -> (
    None
):
    readers = {
        each["metadata"]["labels"]["app.kubernetes.io/component"]
        for each in made_with("minimal", "oidc.mode=required")
        for pod in pods(each)
        for container in containers(pod)
        if "STAMPEDE_EVENT_KEY" in environment(container)
    }
    assert "notifications" in readers
    assert readers <= {"notifications", "setup", "toolbox", "test", "doctor"}


def test_disabled_is_the_default_and_changes_nothing() -> None:
    no_doctor = ("--set", "doctor.knative=false")  # it has a token for Kubernetes itself
    text = template("--values", CHART / "ci" / "minimal.yaml", *no_doctor).stdout
    assert "SENDER" not in text
    assert "audience" not in text
    assert "serviceAccountToken" not in text


def test_another_issuer_is_shown_no_token_of_the_cluster() -> None:
    made = made_with(
        "minimal",
        "oidc.mode=required,oidc.issuer=https://login.test,oidc.caConfigMap=,oidc.audience=sky",
        "oidc.subjects={a,b*}",
    )
    pod = functions(made)["cutouts"]
    found = environment(containers(pod)[0])
    assert found["STAMPEDE_SENDER_ISSUER"] == "https://login.test"
    assert found["STAMPEDE_SENDER_AUDIENCE"] == "sky"
    assert found["STAMPEDE_SENDER_SUBJECTS"].endswith(",a,b*")
    assert "STAMPEDE_SENDER_ISSUER_CA" not in found
    assert "STAMPEDE_SENDER_ISSUER_TOKEN" not in found
    assert not projected(pod, "issuer")


@pytest.mark.parametrize(
    ("sets", "error"),
    [
        ("oidc.mode=accepted,eventKey.enabled=false", "notifications have no token"),
        ("oidc.mode=off", "/oidc/mode"),
        ("oidc.issuer=kubernetes", "/oidc/issuer"),
        ("oidc.subjects={*}", "/oidc/subjects"),
    ],
)
def test_values_that_cannot_work(sets: str, error: str) -> None:
    done = template("--values", CHART / "ci" / "minimal.yaml", "--set", sets)
    assert done.returncode
    assert error in done.stderr
