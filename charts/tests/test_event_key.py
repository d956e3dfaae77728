"""The key of events: every function requires it, and every sender has it."""

import pytest
from rendering import (
    CASES,
    CHART,
    Object,
    containers,
    environment,
    objects,
    pods,
    rendered,
    template,
)

KEY = "a-key-of-the-tests-0123456789"
SECRET = ("--set", "store.accessKey=,store.secretKey=,store.existingSecret=keys")
HELD = [case for case in CASES if case != "gitops"]  # that one names a Secret of the user's
MINIMAL = ("--values", str(CHART / "ci" / "minimal.yaml"))


def references(container: Object) -> dict[str, tuple[str, str]]:
    """Name and key of the Secret of each variable."""
    found = {}
    for variable in container["env"]:
        if "secretKeyRef" in variable.get("valueFrom", {}):
            reference = variable["valueFrom"]["secretKeyRef"]
            found[variable["name"]] = (reference["name"], reference["key"])
    return found


def secret(made: list[Object]) -> Object:
    (found,) = (
        each
        for each in made
        if each["kind"] == "Secret" and each["metadata"]["name"].endswith("-event-key")
    )
    return found


@pytest.mark.parametrize("case", HELD)
def test_functions_and_senders_have_the_key(case: str) -> None:
    made = rendered(case)
    name = secret(made)["metadata"]["name"]
    takers = 0
    for each in made:
        for pod in pods(each):
            for container in containers(pod):
                args = container.get("args", [])
                found = references(container) if container.get("env") else {}
                if args == ["serve", "read"]:
                    assert "STAMPEDE_EVENT_KEY" not in found
                elif args[:1] == ["serve"] or args == ["setup"]:
                    takers += 1
                    assert found["STAMPEDE_EVENT_KEY"] == (name, "event-key"), each["metadata"]
                    assert found["STAMPEDE_SECOND_EVENT_KEY"] == (name, "second-event-key")
                if "STAMPEDE_FUNCTIONS" in environment(container):  # `deadletters replay`
                    assert found["STAMPEDE_EVENT_KEY"] == (name, "event-key")
    assert takers >= 8


@pytest.mark.parametrize("case", HELD)
def test_senders_that_cannot_set_headers_have_it_as_an_attribute(case: str) -> None:
    key = secret(rendered(case))["stringData"]["event-key"]
    assert len(key) >= 16
    senders = [*objects(case, "PingSource").values(), *objects(case, "KafkaSource").values()]
    assert senders
    for each in senders:
        assert each["spec"]["ceOverrides"]["extensions"]["accesskey"] == key


def test_a_key_that_is_given() -> None:
    data = secret(rendered("full"))["stringData"]
    assert data == {"event-key": KEY, "second-event-key": "another-key-of-the-tests"}
    assert secret(rendered("kafkasource"))["stringData"] == {"event-key": KEY}


def test_pods_are_replaced_when_a_given_key_changes() -> None:
    def checksums(key: str) -> set[str]:
        made = rendered("minimal", "--set", f"eventKey.value={key}")
        annotations = [p["metadata"].get("annotations", {}) for each in made for p in pods(each)]
        return {each["checksum/keys"] for each in annotations if "checksum/keys" in each}

    first, second = checksums("one-key-0123456789"), checksums("another-key-0123456789")
    assert len(first) == len(second) == 1
    assert first != second


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ((), "eventKey.existingSecret and eventKey.value are not set"),
        (
            ("--api-versions", "serving.knative.dev/v1"),  # a renderer that was told of Knative
            "eventKey.existingSecret and eventKey.value are not set",
        ),
        (("--set", "eventKey.value=short"), "/eventKey/value"),
        (
            ("--set", f"eventKey.value={KEY},eventKey.existingSecret=mine"),
            "eventKey.existingSecret is set and a key is given",
        ),
    ],
)
def test_no_key_that_changes_with_every_rendering(values: tuple[str, ...], error: str) -> None:
    done = template(*MINIMAL, *SECRET, *values)
    assert done.returncode
    assert error in done.stderr


@pytest.mark.parametrize("off", ["eventKey.enabled=false"])
def test_without_a_key(off: str) -> None:
    text = template(*MINIMAL, "--set", off).stdout
    assert "EVENT_KEY" not in text
    assert "accesskey" not in text
    assert "event-key" not in text


def test_a_release_that_only_reads_needs_no_key() -> None:
    functions = [
        "cutouts",
        "lightcurves",
        "deadletters",
        "thumbnails",
        "compact",
        "reconcile",
        "scrub",
        "notifications",
    ]
    off = ",".join(f"functions.{name}.enabled=false" for name in functions)
    done = template(*MINIMAL, *SECRET, "--set", off)
    assert done.returncode == 0, done.stderr
    assert "event-key" not in done.stdout
