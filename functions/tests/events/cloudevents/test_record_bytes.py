"""Key and headers of any record come back as bytes from its event."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stampede.events.cloudevents import structured
from stampede.events.cloudevents.attributes import RECORD_LENGTH
from stampede.events.cloudevents.envelope import envelope_of
from stampede.events.cloudevents.event import Event, parse
from stampede.events.cloudevents.kafka_record import CloudEventHeaders, Record
from stampede.events.cloudevents.record_bytes import AS_TEXT, HEADER_BYTES, MOST_BYTES, json_of
from stampede.events.delivery.outlet import headers_of
from stampede.handlers.replay.messages import record_of

EVENT_HEADERS = CloudEventHeaders("broker", "ztf", {})
HEADERS = st.lists(
    st.tuples(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
        | st.sampled_from(["a", "b", "A", "content-type", "Content-Type", "traceparent"]),
        st.none()
        | st.binary(max_size=20)
        | st.text(max_size=5).map(lambda text: text.encode("utf-8", "replace")),
    ),
    max_size=5,
)


def record(key: bytes | None, headers: list, lost: str = "") -> Record:
    return Record("alerts", 3, 15, 1_772_337_906_789, key, headers, b"\0alert", lost=lost)


def sent(made: Record, event_headers: CloudEventHeaders = EVENT_HEADERS) -> Event:
    """The event of a record as a function reads it."""
    headers, body = structured.fitted(event_headers.headers(made), made.value)
    assert sum(map(len, headers.values())) <= structured.MOST_HEADER_BYTES
    fields = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return parse(fields, body)


def given_back(event: Event) -> tuple[bytes | None, list, str | None]:
    """Key, headers, and what is lost, as a row of a packet has them."""
    envelope = envelope_of(event.attributes)
    row = {"key": envelope.key, "headers": envelope.headers, "record": envelope.record}
    key, headers, lost = record_of(row)
    return key, list(headers), lost


@given(st.none() | st.binary(max_size=30), HEADERS)
@example(b"k" * 70_000, [])
@example(bytes(range(256)) * 280, [("h", b"x" * 200_000)])
@example(None, [(f"h{number:03}", b"1") for number in range(300)])
@example(None, [("h" * 300, b"1")])
@example(b"a", [("a", b"y" * 60_000), ("b", b"\0" * 20_000)])
def test_any_key_and_headers_come_back(key: bytes | None, headers: list) -> None:
    event = sent(record(key, headers))
    assert event.data == b"\0alert"
    assert event.position == ("alerts", 3, 15)
    assert given_back(event) == (key, headers, "")


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        (None, []),
        (b"ZTF18", []),
        ("ü".encode(), [("a", b"1"), ("b", b"")]),
        (b"\n", [("a1", b"%")]),
    ],
)
def test_what_is_plain_text_is_not_sent_twice(key: bytes | None, headers: list) -> None:
    assert sent(record(key, headers)).attributes["kafkarecord"] == AS_TEXT


def test_an_override_of_the_text_does_not_change_the_bytes() -> None:
    overriding = CloudEventHeaders("broker", "ztf", {"partitionkey": "other", "kafkaheadera": "2"})
    event = sent(record(b"key", [("a", b"1")]), overriding)
    assert event.attributes["partitionkey"] == "other"
    assert given_back(event) == (b"key", [("a", b"1")], "")


def test_what_is_too_long_is_named() -> None:
    long = b"x" * (MOST_BYTES + 1)
    assert given_back(sent(record(long, [("a", b"\xff")]))) == (
        None,
        [("a", b"\xff")],
        "its key of 1,048,577 bytes",
    )
    key, headers, lost = given_back(sent(record(b"key", [("a", long)], "its time")))
    assert (key, headers, lost) == (
        b"key",
        [],
        "its time, its headers, with the key 1,048,583 bytes",
    )


@pytest.mark.parametrize("name", ["", "\0"])
def test_headers_of_hardly_any_bytes_are_bounded_too(name: str) -> None:
    """An event of what is just short enough is accepted."""
    most = MOST_BYTES // (len(name) + HEADER_BYTES)
    event = sent(record(None, [(name, None)] * most))
    assert len(given_back(event)[1]) == most
    assert len(event.attributes["kafkarecord"]) < RECORD_LENGTH
    _, headers, lost = given_back(sent(record(None, [(name, None)] * (most + 1))))
    assert (headers, lost[:11]) == ([], "its headers")


def test_a_key_of_the_function_stays_where_it_is_looked_for() -> None:
    event_headers = CloudEventHeaders("broker", "ztf", {"accesskey": "k" * 20})
    headers, body = structured.fitted(event_headers.headers(record(b"\xff" * 40_000, [])), b"a")
    assert headers["content-type"] == structured.CONTENT_TYPE
    assert headers["ce-accesskey"] == json.loads(body)["accesskey"] == "k" * 20
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert "accesskey" not in parse(fields, body).attributes


def test_the_event_of_another_source_tells_nothing() -> None:
    attributes = dict(sent(record(b"key", [("a", b"1")])).attributes)
    del attributes["kafkarecord"]
    assert given_back(Event(attributes, b"")) == (b"key", [("a", b"1")], None)
    attributes |= {"partitionkey": "\ufffd", "kafkaheadera": "x\ufffd"}
    lost = "bytes that are no UTF-8: its key, its header a"
    assert given_back(Event(attributes, b""))[2] == lost


@pytest.mark.parametrize("text", ["", "no base64!", "====", "é"])
def test_what_is_no_base64_tells_nothing(text: str) -> None:
    assert json_of(text) is None


def test_what_is_no_record_is_named() -> None:
    good = '{"key": null, "headers": [], "lost": ""}'
    wrong = (
        "{}",
        "[]",
        "{",
        '"',
        "[" * 10_000,
        f"{good} more",
        good.replace("null", '"no base64"'),
        good.replace("[]", r'[["\ud800", null]]'),
        good.replace('""', r'"\ud800"'),
        good.replace('""', r'"\u001b[2J"'),
    )
    for data in (*wrong, good.replace("[]", "[1]"), good.replace("[]", '[["a", 1]]')):
        row = {"key": "key", "headers": json.dumps({"a": "1"}), "record": data}
        key, headers, lost = record_of(row)
        assert (key, list(headers)) == (None, [])
        assert str(lost).startswith("its key and headers, which cannot be read: ")


def test_an_event_without_key_and_headers_says_so() -> None:
    made = record(b"key", [("\ud800", b"1")])
    fields = [(n.encode(), v.encode()) for n, v in headers_of(EVENT_HEADERS, made).items()]
    assert given_back(parse(fields, made.value)) == (None, [], "its key and headers")
