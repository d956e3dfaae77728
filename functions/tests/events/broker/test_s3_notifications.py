"""Notifications of S3 endpoints, and the event made from each."""

import json
from datetime import UTC, datetime
from urllib.parse import unquote

import pytest

from stampede.errors import NotAnEvent
from stampede.events.broker.s3_notifications import parse_notification, stored_events
from stampede.events.cloudevents.event import Event, parse
from stampede.events.cloudevents.s3_events import event_of, headers_of, key_of, stored_event
from tests.support.store.s3_notifications import (
    DIALECTS,
    HOST,
    JSON,
    REQUEST,
    encoded,
    record,
    records,
)


def events_in(headers: dict[str, str], body: bytes) -> list[Event]:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return stored_events(parse_notification(raw, body).data, "us-east-1")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_becomes_the_same_event(dialect: str) -> None:
    (event,) = events_in(*DIALECTS[dialect])
    assert event.attributes == {
        "specversion": "1.0",
        "id": f"{REQUEST}.{HOST}",
        "source": "aws:s3.us-east-1.stampede",
        "type": "com.amazonaws.s3.ObjectCreated:Put",
        "subject": "packs/61000/0a.parquet",
        "collection": "packs",
        "night": "61000",
        "time": "2026-03-01T11:55:12.219226Z",
        "datacontenttype": "application/json",
    }
    assert key_of(event) == "packs/61000/0a.parquet"
    sent = json.loads(event.data)["s3"]["object"].pop("key")
    assert unquote(sent) == "packs/61000/0a.parquet"


@pytest.mark.parametrize("source", ["aws:s3", "minio:s3", "rustfs:s3"])
@pytest.mark.parametrize("key", ["packs/1", "a b+c/d%2Fe", "ü/%25", "a%2Bb"])
def test_a_key_is_decoded_once(source: str, key: str) -> None:
    (event,) = events_in(JSON, records(encoded(source, key)))
    assert key_of(event) == key
    headers = [(name.encode(), value.encode()) for name, value in headers_of(event).items()]
    assert key_of(parse(headers, event.data)) == key


@pytest.mark.parametrize("key", ["packs/1", "a b+c/d%2Fe", "ü/%25"])
def test_ceph_does_not_encode_keys(key: str) -> None:
    (event,) = events_in(JSON, records(record(key)))
    assert key_of(event) == key


def test_several_records_become_as_many_events() -> None:
    events = events_in(JSON, records(record("packs/1"), record("tables/2"), record("packs/3")))
    assert [key_of(event) for event in events] == ["packs/1", "tables/2", "packs/3"]


@pytest.mark.parametrize(
    "name",
    [
        "ObjectCreated:Put",
        "s3:ObjectCreated:Post",
        "ObjectCreated:CompleteMultipartUpload",
        "ObjectCreated:Copy",
    ],
)
def test_every_way_of_storing_an_object_has_one_type(name: str) -> None:
    (event,) = events_in(JSON, records(record(name=name)))
    assert event.attributes["type"] == "com.amazonaws.s3.ObjectCreated:Put"
    assert json.loads(event.data)["eventName"] == name
    assert key_of(event)


@pytest.mark.parametrize(
    ("key", "extensions"),
    [
        ("packs/61006/0a.parquet", {"collection": "packs", "night": "61006"}),
        ("thumbnails/-3/0a.parquet", {"collection": "thumbnails", "night": "-3"}),
        ("alerts/lsst/v7_4/61006/0a.avro", {"collection": "alerts", "night": "61006"}),
        ("tables/detections/runs/0.parquet", {"collection": "tables"}),
        ("deadletters/cutouts/7/0a", {"collection": "deadletters"}),
        ("alone", {}),
    ],
)
def test_attributes_that_filters_match(key: str, extensions: dict[str, str]) -> None:
    attributes = event_of(record(key), "r").attributes
    found = {name: attributes[name] for name in ("collection", "night") if name in attributes}
    assert found == extensions


@pytest.mark.parametrize(
    "body",
    [
        records(),
        records(record(name="ObjectRemoved:Delete")),
        records(record(name="s3:ObjectRemoved:DeleteMarkerCreated")),
        records(record(name="ObjectLifecycle:Expiration:Current")),
        b'{"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "stampede"}',
    ],
)
def test_nothing_was_stored(body: bytes) -> None:
    assert events_in(JSON, body) == []


def test_removed_among_stored() -> None:
    events = events_in(JSON, records(record("a"), record("b", "ObjectRemoved:Delete"), record("c")))
    assert [key_of(event) for event in events] == ["a", "c"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"not JSON",
        b"[" * 100_000,
        b"[]",
        b"null",
        b"7",
        b"{}",
        b'{"Records": null}',
        b'{"Records": 7}',
        b'{"Records": [null]}',
        b'{"Records": [{}]}',
        b'{"Records": [{"eventName": 7}]}',
        records(record(s3=None)),
        records(record(s3={"bucket": {"name": "stampede"}, "object": {}})),
        records(record(s3={"bucket": {"name": "stampede"}, "object": {"key": 7}})),
        records(record(s3={"bucket": {"name": ""}, "object": {"key": "a"}})),
        records(record(name="")),
        records(record(responseElements="?")),
        records(record(), {"eventName": "ObjectCreated:Put"}),
    ],
)
def test_garbage_is_not_a_notification(body: bytes) -> None:
    with pytest.raises(NotAnEvent, match=r"not an S3|it lacks") as caught:
        events_in(JSON, body)
    assert caught.value.status == 400
    assert "\n" not in caught.value.message


def test_an_invalid_event() -> None:
    with pytest.raises(NotAnEvent, match="lacks source"):
        events_in({"ce-id": "1", "ce-specversion": "1.0", "ce-type": "t"}, records(record()))


def test_a_record_without_a_request_id() -> None:
    one, same = (event_of(record(responseElements={}), "r") for _ in range(2))
    other = event_of(record("packs/other", responseElements=None), "r")
    assert one.attributes["id"] == same.attributes["id"] != other.attributes["id"]


@pytest.mark.parametrize("time", [None, "", "yesterday", 7])
def test_an_invalid_time_is_left_out(time: object) -> None:
    assert "time" not in event_of(record(eventTime=time), "r").attributes


def test_the_region_of_a_record_comes_first() -> None:
    assert event_of(record(awsRegion="eu"), "r").attributes["source"] == "aws:s3.eu.stampede"


def test_an_object_found_in_a_listing() -> None:
    when = datetime(2026, 3, 1, tzinfo=UTC)
    one, same = (stored_event("stampede", "r", "packs/1", 7, "e", when) for _ in range(2))
    assert one == same
    assert key_of(one) == "packs/1"
    assert one.attributes["source"] == "aws:s3.r.stampede"
    assert one.attributes["type"] == "com.amazonaws.s3.ObjectCreated:Put"
    assert json.loads(one.data)["s3"]["object"] == {"key": "packs/1", "size": 7, "eTag": "e"}
    assert stored_events(one.data, "r") == [one]
    assert one.attributes["id"] != stored_event("stampede", "r", "packs/2").attributes["id"]


@pytest.mark.parametrize("key", ["packs/1", 'a b"ü%', "x" * 900])
def test_what_is_sent_is_what_arrives(key: str) -> None:
    event = stored_event("stampede", "r", key, modified=datetime(2026, 3, 1, 2, 3, 4, tzinfo=UTC))
    headers = [(name.encode(), value.encode()) for name, value in headers_of(event).items()]
    arrived = parse(headers, event.data)
    assert key_of(arrived) == key
    assert headers_of(arrived) == headers_of(event)


@pytest.mark.parametrize(
    ("kind", "subject"),
    [
        ("com.amazonaws.s3.ObjectRemoved:Delete", "packs/1"),
        ("dev.knative.kafka.event", "partition:0#1"),
        ("com.amazonaws.s3.ObjectCreated:Put", None),
        ("com.amazonaws.s3.ObjectCreated:Put", ""),
    ],
)
def test_other_events_have_no_key(kind: str, subject: str | None) -> None:
    with pytest.raises(NotAnEvent, match="not the event of a stored object"):
        key_of(Event({"type": kind, "subject": subject, "id": "1", "source": "s"}, b""))
