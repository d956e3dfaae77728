"""Schemas by id, from a registry that responses as a test decides."""

import json
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stampede.config.settings import Settings
from stampede.doctor.finding import Installation
from stampede.doctor.registry import registry as examined
from stampede.errors import SchemaRegistryDown, Undecodable
from stampede.events.kafka.schema_registry import SchemaRegistry
from tests.doctor.test_knative import make_certificate
from tests.support.events.schema_registry import SchemaRegistryServer
from tests.support.mounted_secret import MountedSecret

ALERT = {"type": "record", "name": "alert", "fields": [{"name": "f0", "type": "long"}]}


def client_of(url: str, **settings: Any) -> SchemaRegistry:
    return SchemaRegistry(Settings(schema_registry=url, **settings), timeout=5)


def basic(user: str, password: str) -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as server:
        yield server


def test_a_schema_is_fetched_once_with_its_name(registry):
    schema = {**ALERT, "name": "lsst.v12_0.alert", "doc": "new"}
    registry.answers["/schemas/ids/1200"] = (200, {"schema": json.dumps(schema)})
    client = client_of(registry.url + "/")
    assert client.schema(1200) == client.schema(1200) == schema
    assert registry.requested == ["/schemas/ids/1200"]


def test_an_unknown_id_is_undecodable_and_requested_again_later(registry, monkeypatch):
    client = client_of(registry.url)
    for _ in range(20):  # messages of one batch
        with pytest.raises(Undecodable, match="1201"):
            client.schema(1201)
    assert registry.requested == ["/schemas/ids/1201"]
    later = time.monotonic() + 1.1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    registry.answers["/schemas/ids/1201"] = (200, {"schema": '"long"'})
    assert client.schema(1201) == "long"


@pytest.mark.parametrize(
    ("response", "error"),
    [
        ((200, {"schema": "{not json"}), Undecodable),
        ((200, {"schema": '{"type": "record", "name": "a"}'}), Undecodable),
        ((200, {"schema": "{}", "schemaType": "JSON"}), Undecodable),
        ((200, {"no": "schema"}), SchemaRegistryDown),
        ((200, b"<html>"), SchemaRegistryDown),
        ((500, {"error_code": 50001}), SchemaRegistryDown),
        ((401, {}), SchemaRegistryDown),
    ],
)
def test_registry_answers(registry, response, error):
    registry.answers["/schemas/ids/7"] = response
    with pytest.raises(error):
        client_of(registry.url).schema(7)


def test_a_registry_that_is_down_is_asked_once_for_a_batch(registry, monkeypatch):
    registry.answers["/schemas/ids/7"] = (500, {})
    client = client_of(registry.url)
    for schema_id in (7, 7, 8):
        with pytest.raises(SchemaRegistryDown):
            client.schema(schema_id)
    assert registry.requested == ["/schemas/ids/7"]
    monkeypatch.setattr("stampede.events.kafka.schema_registry.PAUSE_SECONDS", 0)
    client = client_of(registry.url)
    with pytest.raises(SchemaRegistryDown):
        client.schema(7)
    registry.answers["/schemas/ids/7"] = (200, {"schema": '"long"'})
    assert client.schema(7) == "long"


def test_registry_down_is_tried_again():
    client = client_of("http://127.0.0.1:1")
    with pytest.raises(SchemaRegistryDown) as caught:
        client.schema(1200)
    assert caught.value.status == 503
    assert "127.0.0.1:1" in caught.value.message


USER = {"schema_registry_user": "night", "schema_registry_password": "se:cr\u00e9t"}
TOKEN = {"schema_registry_token": "bearer-1"}


@pytest.mark.parametrize(
    ("userinfo", "settings", "header"),
    [
        ("", USER, basic("night", "se:cr\u00e9t")),
        ("", TOKEN, "Bearer bearer-1"),
        ("night:a%40b@", {}, basic("night", "a@b")),
        ("other:one@", USER, basic("night", "se:cr\u00e9t")),
        ("other:one@", TOKEN, "Bearer bearer-1"),
        ("", {}, None),
    ],
)
def test_the_login_that_is_sent(
    registry: SchemaRegistryServer, userinfo: str, settings: dict[str, str], header: str | None
) -> None:
    registry.authorization = header
    registry.answers["/schemas/ids/7"] = (200, {"schema": '"long"'})
    url = registry.url.replace("//", f"//{userinfo}")
    assert client_of(url, **settings).schema(7) == "long"


def test_a_login_from_files_follows_them(registry: SchemaRegistryServer, tmp_path: Path) -> None:
    secret = MountedSecret(tmp_path / "login", {"user": "night", "password": "old"})
    client = client_of(registry.url, schema_registry_keys=str(secret), **TOKEN)
    for number, password in enumerate(("old", "new")):
        secret.change({"user": "night", "password": password})
        registry.authorization = basic("night", password)
        registry.answers[f"/schemas/ids/{number}"] = (200, {"schema": '"long"'})
        assert client.schema(number) == "long"
    token = MountedSecret(tmp_path / "token", {"token": "t"})
    registry.authorization = "Bearer t"
    assert client_of(registry.url, schema_registry_keys=str(token)).schema(0) == "long"


def faults(url: str, **settings: Any) -> list[str]:
    """What `stampede doctor` finds."""
    given = Settings(schema_registry=url, **settings)
    return [finding.fault for finding in examined(Installation(given, {}))]


def test_doctor_says_what_is_wrong_and_no_password(
    registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    registry.authorization = basic("night", "right")
    with_login = registry.url.replace("//", "//night:wrong-pass@")
    wrong = {"schema_registry_user": "night", "schema_registry_password": "wrong-pass"}
    cases = [
        (faults(registry.url), "wants a login (401): set STAMPEDE_SCHEMA_REGISTRY_KEYS"),
        (faults(with_login), f"{registry.url} does not accept the user night (401)"),
        (faults(registry.url, **wrong), f"{registry.url} does not accept the user night (401)"),
        (faults(registry.url, **TOKEN), f"{registry.url} does not accept the token (401)"),
        (faults(registry.url, **TOKEN, **USER), "a user and a token: set one of the two"),
        (faults(registry.url, schema_registry_token="a\nb"), "is not printable ASCII"),
        (faults(registry.url, schema_registry_keys=str(tmp_path)), "no files user and password"),
        (
            faults("http://night:wrong-pass@127.0.0.1:1"),
            "http://127.0.0.1:1/schemas/ids/1 does not",
        ),
        (faults("night:wrong-pass@registry"), "begins neither with http://"),
    ]
    for found, expected in cases:
        (fault,) = found
        assert expected in fault
        assert "wrong-pass" not in fault
    assert faults(registry.url.replace("//", "//night:right@")) == []
    registry.answers["/schemas/ids/1"] = (403, {"error_code": 403})
    (fault,) = faults(registry.url.replace("//", "//night:right@"))
    assert "does not let read the user night (403)" in fault


def test_doctor_knows_what_is_no_registry(registry: SchemaRegistryServer) -> None:
    assert faults(registry.url) == []  # it does not have the id
    registry.answers["/schemas/ids/1"] = (404, b"<html>Not Found</html>")
    (fault,) = faults(registry.url)
    assert "is no schema registry" in fault


def test_a_private_authority(tmp_path: Path) -> None:
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    make_certificate(*files)
    with SchemaRegistryServer(*files) as server:
        server.authorization = "Bearer bearer-1"
        assert faults(server.url, schema_registry_ca=files[0], **TOKEN) == []
        (fault,) = faults(server.url, **TOKEN)
        assert "is not trusted, see STAMPEDE_SCHEMA_REGISTRY_CA" in fault
        (fault,) = faults(server.url, schema_registry_ca=tmp_path / "absent", **TOKEN)
        assert "STAMPEDE_SCHEMA_REGISTRY_CA" in fault
        assert "absent" in fault
