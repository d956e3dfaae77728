"""The examples and schemas in `eventing/`, checked against the events that are sent and parsed.

At the top, since sources, functions, the relay and Triggers share this contract.
"""

import json
from datetime import UTC, datetime

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from stampede.events.broker.s3_notifications import parse_notification, stored_events
from stampede.events.broker.triggers import read_triggers
from stampede.events.cloudevents.event import Position
from stampede.events.cloudevents.kafka_record import CloudEventHeaders, Record
from stampede.events.cloudevents.s3_events import TYPE, headers_of, stored_event
from tests.support.events.event_examples import (
    ALERTS,
    EVENTING,
    LETTER,
    STORED,
    event_of,
    example,
    problems,
)
from tests.support.store.s3_notifications import DIALECTS

PLACES = {
    "alert-lsst": Position("lsst-alerts", 3, 42),
    "alert-ztf": Position("ztf-alerts", 0, 7),
}


@pytest.mark.parametrize("name", ["alert", "stored-object"])
def test_the_schemas_are_valid(name: str) -> None:
    Draft202012Validator.check_schema(
        json.loads((EVENTING / "schemas" / f"{name}.json").read_text())
    )


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_of_a_kafka_source(name: str) -> None:
    event = example(name).event
    assert problems("alert", event) == []
    assert event.position == PLACES[name]


def test_a_dead_letter() -> None:
    event = example(LETTER).event
    assert problems("alert", event) == []
    assert event.position == Position("lsst-alerts", 3, 43)


def test_a_stored_object() -> None:
    assert problems("stored-object", example(STORED).event, data=True) == []


texts = st.text(min_size=1, max_size=20)


@given(
    topic=st.from_regex("[a-zA-Z0-9._-]{1,40}", fullmatch=True),
    partition=st.integers(0, 2**31 - 1).filter(lambda n: n < 10**9),
    offset=st.integers(0, 10**18 - 1),
    milliseconds=st.none() | st.integers(0, 4_000_000_000_000),
    key=st.none() | texts,
    headers=st.lists(st.tuples(texts, texts.map(str.encode)), max_size=3),
)
def test_what_our_source_sends(topic, partition, offset, milliseconds, key, headers) -> None:
    made = Record(
        *(topic, partition, offset, milliseconds, key.encode() if key else None, headers, b"x")
    )
    event = event_of(
        CloudEventHeaders("stampede", "ours", {"site": "one"}).headers(made), made.value
    )
    # A Kafka header may have any name: one of them is a content type, most are extensions.
    assert problems("alert", event) == []
    assert event.position == Position(topic, partition, offset)


@pytest.mark.parametrize("name", ALERTS)
def test_our_source_sends_what_a_kafka_source_does(name: str) -> None:
    """Both describe the same record; the times agree to the millisecond, in any notation."""
    kafka_source = example(name)
    kafka = kafka_source.event.attributes
    headers = {
        "kafkaheaderschemavsn": ("schemavsn", b"4.02"),
        "datacontenttype": ("Content-Type", b"application/Avro"),
    }
    record = Record(
        *PLACES[name],
        round(datetime.fromisoformat(kafka["time"]).timestamp() * 1000),
        kafka["key"].encode() if "key" in kafka else None,
        [header for name, header in headers.items() if name in kafka],
        kafka_source.body,
    )
    source = kafka["source"].rpartition("#")[0].split("/")
    event_headers = CloudEventHeaders(
        source[4], source[6], {"site": "one"} if "site" in kafka else {}
    )
    own_source = event_of(event_headers.headers(record), record.value)
    later = {"knativekafkatopic"}  # from newer releases than the one that our source follows
    own = own_source.attributes
    own.pop("kafkarecord")  # Stampede's own
    times = [datetime.fromisoformat(each.pop("time")) for each in (own, kafka)]
    assert times[0] == times[1]
    assert own == {k: v for k, v in kafka.items() if k not in later}
    assert own_source.data == kafka_source.event.data


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_the_relay_sends(dialect: str) -> None:
    headers, body = DIALECTS[dialect]
    notification = parse_notification([(k.encode(), v.encode()) for k, v in headers.items()], body)
    (event,) = stored_events(notification.data, "us-east-1")
    sent = event_of(headers_of(event), event.data)
    assert problems("stored-object", sent, data=True) == []


def test_what_reconcile_sends() -> None:
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    event = stored_event("stampede", "us-east-1", "packs/61006/0a.parquet", 10, "0a", moment)
    assert problems("stored-object", event_of(headers_of(event), event.data), data=True) == []


@pytest.mark.parametrize(
    ("name", "headers", "wrong"),
    [
        ("alert-lsst", {"ce-type": "dev.knative.kafka.events"}, "$.type"),
        ("alert-lsst", {"ce-source": "/apis/v1/namespaces/a/kafkasources/b"}, "$.source"),
        ("alert-lsst", {"ce-subject": "offset 2"}, "$.subject"),
        ("alert-lsst", {"ce-id": "42"}, "$.id"),
        ("alert-ztf", {"ce-knativekafkaoffset": "seven"}, "$.knativekafkaoffset"),
        ("alert-ztf", {"content-type": "application/Avro"}, "$.datacontenttype"),
        ("stored-object", {"ce-type": "com.amazonaws.ObjectCreated:Put"}, "$.type"),
        ("stored-object", {"ce-source": "ceph:s3..stampede"}, "$.source"),
        ("stored-object", {"ce-subject": "tmp/x"}, "$.subject"),
        ("stored-object", {"ce-collection": "pictures"}, "$.collection"),
        ("stored-object", {"ce-night": "tonight"}, "$.night"),
    ],
)
def test_what_the_schemas_refuse(name: str, headers: dict[str, str], wrong: str) -> None:
    sent = example(name)
    event = event_of(sent.headers | headers, sent.body)
    (problem,) = problems("alert" if name in ALERTS else name, event, data=name == STORED)
    assert problem.startswith(f"{wrong}: ")


def test_event_types_are_what_triggers_match() -> None:
    """Some Trigger matches every declared event type."""
    kinds = list(yaml.safe_load_all((EVENTING / "eventtypes.yaml").read_text()))
    triggers = read_triggers(EVENTING / "triggers.yaml")
    attributes = example(STORED).event.attributes
    types = {
        each["value"]
        for kind in kinds
        for each in kind["spec"]["attributes"]
        if each["name"] == "type"
    }
    assert types == {TYPE}
    for kind in types:
        matching = [each for each in triggers if each.matches(attributes | {"type": kind})]
        assert {each.metadata.name for each in matching} == {
            "stampede-thumbnails",
            "stampede-replicate",
        }
    assert {kind["spec"]["reference"]["name"] for kind in kinds} == {
        each.spec.broker for each in triggers
    }
