from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_binary
from cloudevents.core.formats.json import JSONFormat
from hypothesis import given
from hypothesis import strategies as st

from stampede.events.cloudevents.event import Event, Position, parse
from stampede.events.cloudevents.kafka_record import CloudEventHeaders, Record, extension_headers
from stampede.events.cloudevents.structured import fitted
from stampede.events.http.bounded_protocol import HEADER_BYTES

EVENT_HEADERS = CloudEventHeaders("broker", "ztf", {})


def record(**changes: Any) -> Record:
    plain = Record("alerts", 3, 15, 1_772_337_906_789, None, (), b"\x00alert")
    return plain._replace(**changes)


def test_it_is_the_event_of_a_kafka_source() -> None:
    assert EVENT_HEADERS.headers(record()) == {
        "ce-specversion": "1.0",
        "ce-type": "dev.knative.kafka.event",
        "ce-source": "/apis/v1/namespaces/broker/kafkasources/ztf#alerts",
        "ce-subject": "partition:3#15",
        "ce-id": "partition:3/offset:15",
        "ce-time": "2026-03-01T04:05:06.789Z",
        "ce-knativekafkapartition": "3",
        "ce-knativekafkaoffset": "15",
        "ce-kafkarecord": "as-text",  # this is Stampede's own
    }


def test_the_event_endpoint_finds_its_place_in_kafka() -> None:
    headers = [(k.encode(), v.encode()) for k, v in EVENT_HEADERS.headers(record()).items()]
    event = parse(headers, b"alert")
    assert event.position == Position("alerts", 3, 15)
    assert event.data == b"alert"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"key": b"ZTF21aaa"}, {"partitionkey": "ZTF21aaa", "key": "ZTF21aaa"}),
        ({"key": "Größe 5%".encode()}, {"partitionkey": "Größe 5%", "key": "Größe 5%"}),
        ({"key": b""}, {"partitionkey": None, "key": None}),
        ({"headers": [("Schema-Id", b"1101")]}, {"kafkaheaderschemaid": "1101"}),
        ({"headers": [("a", b"1"), ("A", b"2")]}, {"kafkaheadera": "2"}),
        ({"headers": [("none", None)]}, {"kafkaheadernone": None}),
        (
            {"headers": [("Content-Type", b"Avro/Binary")]},
            {"datacontenttype": "avro/binary", "kafkaheadercontenttype": None},
        ),
        ({"headers": [("content-type", b"a/b\r\nx: y")]}, {"datacontenttype": None}),
        ({"milliseconds": 1000}, {"time": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}),
    ],
)
def test_what_a_record_adds(changes: dict[str, object], expected: dict[str, object]) -> None:
    attributes = sdk(EVENT_HEADERS.headers(record(**changes)))
    assert {name: attributes.get(name) for name in expected} == expected


def test_a_record_without_a_timestamp_gives_no_time() -> None:
    assert "ce-time" not in EVENT_HEADERS.headers(record(milliseconds=None))


def test_overrides_win() -> None:
    overriding = CloudEventHeaders("default", "ztf", {"survey": "ztf", "key": "k"})
    attributes = sdk(overriding.headers(record(key=b"other")))
    assert (attributes["survey"], attributes["key"]) == ("ztf", "k")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    key=TEXT,
    headers=st.lists(st.tuples(st.from_regex("[A-Za-z0-9_-]{1,12}", fullmatch=True), TEXT)),
    milliseconds=st.integers(0, 4_000_000_000_000),
)
def test_the_sdk_reads_back_any_record(
    key: str, headers: list[tuple[str, str]], milliseconds: int
) -> None:
    headers = [(name, value) for name, value in headers if name.lower() != "content-type"]
    made = EVENT_HEADERS.headers(
        record(
            key=key.encode(),
            headers=[(name, value.encode()) for name, value in headers],
            milliseconds=milliseconds,
        )
    )
    assert all(value.isascii() and value.isprintable() for value in made.values())
    attributes = sdk(made)
    assert attributes.get("partitionkey", "") == key
    assert attributes["time"].timestamp() * 1000 == pytest.approx(milliseconds, abs=0.5)
    last = {"".join(filter(str.isalnum, name.lower())): value for name, value in headers}
    for name, value in last.items():
        assert attributes[f"kafkaheader{name}"] == value


@pytest.mark.parametrize(
    "milliseconds",
    [1_772_337_906_789_000, 253_402_300_800_000, 1_831_000_000_000_000, -1, -(2**63), 2**63 - 1],
    ids=["microseconds", "year 10000", "year 60000", "negative", "least", "most"],
)
def test_a_time_that_cannot_be_written_is_left_out(milliseconds: int) -> None:
    """Kafka checks no producer's CreateTime; the alert is sent all the same."""
    headers = EVENT_HEADERS.headers(record(milliseconds=milliseconds))
    assert "ce-time" not in headers
    assert parsed(headers).position == ("alerts", 3, 15)


@given(
    milliseconds=st.none() | st.integers(-(2**63), 2**63 - 1),
    key=st.none() | st.binary(max_size=50),
    headers=st.lists(
        st.tuples(st.text(max_size=20) | st.just("content-type"), st.none() | st.binary()),
        max_size=8,
    ),
)
def test_a_function_accepts_the_event_of_any_record(milliseconds, key, headers) -> None:
    """What no function accepts could never be delivered, not even as a dead letter."""
    made = record(milliseconds=milliseconds, key=key, headers=headers)
    assert parsed(EVENT_HEADERS.headers(made)).position == ("alerts", 3, 15)


@pytest.mark.parametrize(
    "changes",
    [
        {"key": b"k" * 1_000_000},
        {"key": b"\xff" * 10_000},
        {"headers": [("x" * 300, b"1")]},
        {"headers": [(f"x{n}", b"1") for n in range(10_000)]},
        {"headers": [("x", b"\0" * 1_000_000), ("y", b"1")]},
        {"headers": [("Content-Type", b"")]},
        {"headers": [("Content-Type", b"  ")]},
        {"headers": [("Content-Type", b"a/b" * 1000)]},
    ],
)
def test_what_no_server_accepts_as_headers_is_in_the_body(changes: dict[str, object]) -> None:
    headers, body = fitted(EVENT_HEADERS.headers(record(**changes)), b"alert")
    assert sum(map(len, [*headers, *headers.values()])) < HEADER_BYTES / 2
    event = parse([(name.encode(), value.encode()) for name, value in headers.items()], body)
    assert (event.position, event.data) == (("alerts", 3, 15), b"alert")


def test_extensions_are_encoded() -> None:
    assert extension_headers({"reason": 'no "disk"'}) == {"ce-reason": "no%20%22disk%22"}


def parsed(headers: dict[str, str]) -> Event:
    """The event as a function reads it."""
    return parse([(name.encode(), value.encode()) for name, value in headers.items()], b"")


def sdk(headers: dict[str, str]) -> dict:
    """The attributes that the CloudEvents SDK reads."""
    return from_binary(HTTPMessage(headers, b""), JSONFormat()).get_attributes()
