"""Schemas by id, from a registry that responses as a test decides."""

import json
import time
from collections.abc import Iterator

import pytest

from stampede.errors import SchemaRegistryDown, Undecodable
from stampede.events.kafka.schema_registry import SchemaRegistry
from tests.support.events.schema_registry import SchemaRegistryServer

ALERT = {"type": "record", "name": "alert", "fields": [{"name": "f0", "type": "long"}]}


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as server:
        yield server


def test_a_schema_is_fetched_once_with_its_name(registry):
    schema = {**ALERT, "name": "lsst.v12_0.alert", "doc": "new"}
    registry.answers["/schemas/ids/1200"] = (200, {"schema": json.dumps(schema)})
    client = SchemaRegistry(registry.url + "/")
    assert client.schema(1200) == client.schema(1200) == schema
    assert registry.requested == ["/schemas/ids/1200"]


def test_an_unknown_id_is_undecodable_and_requested_again_later(registry, monkeypatch):
    client = SchemaRegistry(registry.url)
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
        SchemaRegistry(registry.url).schema(7)


def test_a_registry_that_is_down_is_asked_once_for_a_batch(registry, monkeypatch):
    registry.answers["/schemas/ids/7"] = (500, {})
    client = SchemaRegistry(registry.url)
    for schema_id in (7, 7, 8):
        with pytest.raises(SchemaRegistryDown):
            client.schema(schema_id)
    assert registry.requested == ["/schemas/ids/7"]
    monkeypatch.setattr("stampede.events.kafka.schema_registry.PAUSE_SECONDS", 0)
    client = SchemaRegistry(registry.url)
    with pytest.raises(SchemaRegistryDown):
        client.schema(7)
    registry.answers["/schemas/ids/7"] = (200, {"schema": '"long"'})
    assert client.schema(7) == "long"


def test_registry_down_is_tried_again():
    client = SchemaRegistry("http://127.0.0.1:1", timeout=2)
    with pytest.raises(SchemaRegistryDown) as caught:
        client.schema(1200)
    assert caught.value.status == 503
    assert "127.0.0.1:1" in caught.value.message
