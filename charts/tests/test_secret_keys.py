"""Secrets that others make are mounted with the names of their keys, as the how-to shows them."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendering import CHART, ROOT, Object, containers, pods, template

PAGE = (ROOT / "docs" / "how-to" / "secrets-of-others.md").read_text()
BLOCKS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
CLAIM, USER, PASSWORD, CERTIFICATE, EXTERNAL = BLOCKS
STORE = {
    "image": {"repository": "registry.example.org/stampede"},
    "store": {"url": "http://ceph:8000/stampede", "existingSecret": "ceph-keys"},
}
KEY = {"eventKey": {"value": "a-key-of-the-tests"}}
Mapped = dict[str, dict[str, str]]


def made(values: dict[str, Any], directory: Path) -> list[Object]:
    file = directory / "values.yaml"
    file.write_text(yaml.safe_dump({**STORE, **KEY, **values}))
    done = template("--values", file)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def mapped(objects: list[Object], secret: str) -> Mapped:
    """By the directory where a Secret is mounted: its key of each file, the same in all pods."""
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for each in objects:
        for pod in pods(each):
            volumes = pod["spec"].get("volumes", ())
            volumes = {v["name"]: v["secret"] for v in volumes if "secret" in v}
            for container in containers(pod):
                for mount in container.get("volumeMounts", ()):
                    volume = volumes.get(mount["name"], {})
                    if volume.get("secretName") == secret:
                        assert "subPath" not in mount, "Kubernetes does not renew such a file"
                        items = {i["path"]: i["key"] for i in volume.get("items", ())}
                        found[mount["mountPath"]].append(items)
    for path, items in found.items():
        assert all(each == items[0] for each in items), path
    return {path: items[0] for path, items in found.items()}


def test_the_page_has_the_blocks_that_are_tested() -> None:
    assert len(BLOCKS) == 5


@pytest.mark.parametrize("block", [CLAIM, USER])
def test_a_store_s_keys(block: dict[str, Any], tmp_path: Path) -> None:
    store = block["store"]
    names = {
        "access-key": store["secretKeys"]["accessKey"],
        "secret-key": store["secretKeys"]["secretKey"],
    }
    objects = made(block, tmp_path)
    assert mapped(objects, store["existingSecret"]) == {"/etc/stampede/store-keys": names}


def test_a_second_site_s_keys_and_those_of_single_functions(tmp_path: Path) -> None:
    keys = {"accessKey": "AccessKey", "secretKey": "SecretKey"}
    objects = made(
        {
            "store": {**STORE["store"], "secrets": {"read": "readers"}, "secretKeys": keys},
            "replica": {
                "url": "http://second:8000/stampede",
                "existingSecret": "second",
                "secretKeys": {"accessKey": "id"},
            },
        },
        tmp_path,
    )
    names = {"access-key": "AccessKey", "secret-key": "SecretKey"}
    assert mapped(objects, "readers") == {"/etc/stampede/store-keys": names}
    second = {"access-key": "id", "secret-key": "secret-key"}
    assert mapped(objects, "second") == {"/etc/stampede/replica-keys": second}


def test_the_chart_s_own_secret_has_its_own_names(tmp_path: Path) -> None:
    """Keys that are given as values, also before an installation."""
    store = {"url": "http://ceph:8000/stampede", "accessKey": "a", "secretKey": "b"}
    values = {"store": {**store, "secretKeys": {"accessKey": "AccessKey"}}}
    objects = made(values, tmp_path)
    own = {"access-key": "access-key", "secret-key": "secret-key"}
    for secret in ("night-store", "night-doctor-store"):
        assert mapped(objects, secret) == {"/etc/stampede/store-keys": own}
        (data,) = (o["stringData"] for o in objects if o["metadata"]["name"] == secret)
        assert data.keys() == own.keys()


def test_a_password_alone(tmp_path: Path) -> None:
    """The user and the mechanism are options then, which a change of the password leaves."""
    objects = made(PASSWORD, tmp_path)
    assert mapped(objects, "stampede") == {"/etc/stampede/kafka-keys": {"password": "password"}}
    options = {
        variable["value"]
        for each in objects
        for pod in pods(each)
        for container in containers(pod)
        for variable in container.get("env", ())
        if variable["name"] == "STAMPEDE_KAFKA_OPTIONS"
    }
    (text,) = options
    assert yaml.safe_load(text) == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/etc/stampede/kafka-ca/ca.crt",
        "sasl.username": "stampede",
        "sasl.mechanism": "SCRAM-SHA-512",
    }


def test_a_certificate(tmp_path: Path) -> None:
    objects = made(CERTIFICATE, tmp_path)
    names = {"tls.crt": "user.crt", "tls.key": "user.key"}
    assert mapped(objects, "stampede") == {"/etc/stampede/kafka-client": names}
    authority = {"/etc/stampede/kafka-ca": {"ca.crt": "ca.crt"}}
    assert mapped(objects, "alerts-cluster-ca-cert") == authority


def test_a_kafka_source_and_keda_read_the_same_keys(tmp_path: Path) -> None:
    source = CERTIFICATE["sources"]["lsst"]
    login = {
        "existingSecret": "login",
        "mechanism": "PLAIN",
        "secretKeys": {"user": "username", "password": "secret", "type": "mechanism"},
    }
    kafka = {**source, "topics": ["a"], "kind": "kafka", "epoch": "1", "sasl": login}
    scaled = {**source, "topics": ["b"], "autoscaling": {"max": 2}, "sasl": login}
    objects = made({"sources": {"kafka": kafka, "scaled": scaled}}, tmp_path)
    net = next(each["spec"]["net"] for each in objects if each["kind"] == "KafkaSource")
    assert {name: net["tls"][name]["secretKeyRef"]["key"] for name in ("cert", "key")} == {
        "cert": "user.crt",
        "key": "user.key",
    }
    assert {name: net["sasl"][name]["secretKeyRef"]["key"] for name in ("user", "password")} == {
        "user": "username",
        "password": "secret",
    }
    assert net["sasl"]["type"]["secretKeyRef"]["key"] == "mechanism"
    (keda,) = (each for each in objects if each["kind"] == "TriggerAuthentication")
    assert {each["parameter"]: each["key"] for each in keda["spec"]["secretTargetRef"]} == {
        "ca": "ca.crt",
        "cert": "user.crt",
        "key": "user.key",
        "username": "username",
        "password": "secret",
    }
    names = {"user": "username", "password": "secret", "type": "mechanism"}
    assert mapped(objects, "login") == {"/etc/stampede/kafka-keys": names}


def test_one_secret_of_external_secrets_has_everything(tmp_path: Path) -> None:
    objects = made(EXTERNAL, tmp_path)
    assert mapped(objects, "from-vault") == {
        "/etc/stampede/store-keys": {"access-key": "s3_access", "secret-key": "s3_secret"},
        "/etc/stampede/tokens": {"tokens": "reader_tokens"},
        "/etc/stampede/proofs": {"proof.pem": "proof_key"},
    }
    keys = {
        variable["name"]: variable["valueFrom"]["secretKeyRef"]
        for each in objects
        for pod in pods(each)
        for container in containers(pod)
        for variable in container.get("env", ())
        if variable["name"].endswith("EVENT_KEY")
    }
    assert keys == {
        "STAMPEDE_EVENT_KEY": {"name": "from-vault", "key": "senders_key"},
        "STAMPEDE_SECOND_EVENT_KEY": {
            "name": "from-vault",
            "key": "second-event-key",
            "optional": True,
        },
    }


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ('store.secretKeys={"access": "a"}', "/store/secretKeys"),
        ('store.secretKeys={"accessKey": "a/b"}', "/store/secretKeys/accessKey"),
        (
            'sources.a.sasl={"existingSecret": "k", "user": "u"}',
            "sources.a: sasl.user needs sasl.mechanism",
        ),
        (
            'sources.a={"bootstrapServers": ["k:1"], "topics": ["a"], "autoscaling": {"max": 2}, '
            '"sasl": {"existingSecret": "k", "user": "u", "mechanism": "PLAIN"}}',
            "sources.a: a KafkaSource, and KEDA, read the user from the Secret",
        ),
    ],
)
def test_wrong_names_of_keys(value: str, error: str) -> None:
    source = ("--set", "sources.a.bootstrapServers={k:1},sources.a.topics={a}")
    done = template("--values", CHART / "ci" / "minimal.yaml", *source, "--set-json", value)
    assert done.returncode
    assert error in done.stderr
