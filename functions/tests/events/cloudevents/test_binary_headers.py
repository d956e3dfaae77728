"""The attributes in headers are those that the CloudEvents SDK finds."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stampede.errors import NotAnEvent
from stampede.events.cloudevents.attributes import SHORT_LENGTH
from stampede.events.cloudevents.event import SDK_ERRORS, binary_attributes, parse

Headers = list[tuple[bytes, bytes]]
ALERT: Headers = [
    (b"host", b"127.0.0.1:8080"),
    (b"ce-specversion", b"1.0"),
    (b"ce-type", b"dev.knative.kafka.event"),
    (b"ce-source", b"/apis/v1/namespaces/default/kafkasources/stampede#ztf-alerts"),
    (b"ce-subject", b"partition:3#17"),
    (b"ce-id", b"partition:3/offset:17"),
    (b"ce-topicid", b"abcdefghijklmnop"),
    (b"ce-time", b"2025-11-24T22:00:00.123Z"),
    (b"ce-accesskey", b"a-key-that-nobody-may-see"),
    (b"content-type", b"application/avro"),
    (b"content-length", b"66000"),
]
NAMES = [
    *(name for name, _ in ALERT),
    *(b"ce-skippedoffsets", b"ce-dataschema", b"ce-datacontenttype", b"ce-key", b"ce-kafkaheadera"),
    *(b"ce-", b"ce-data", b"ce-Upper", b"ce-a-b", b"ce-\xe9", b"authorization", b"contents"),
]
VALUES = st.one_of(
    st.sampled_from([value for _, value in ALERT]),
    st.sampled_from(
        [b"", b" ", b"1", b"0.3", b"%41", b"a%0Ab", b"\xff", b"\t", b"../..", b"partition:x#1"]
    ),
    st.sampled_from([b"12025-11-24T22:00:00Z", b"2025-11-24T22:00:00", b"no time", b"1" * 2000]),
    st.binary(max_size=8),
)


def sdk_attributes(headers: Headers) -> dict[str, str] | None:
    """The attributes as the SDK finds them; None if it refuses."""
    try:
        return binary_attributes(
            {n.decode("latin-1").lower(): v.decode("latin-1") for n, v in headers}
        )
    except SDK_ERRORS:
        return None


def parsed(headers: Headers) -> dict[str, str] | None:
    """The attributes of the event; None if it is refused."""
    try:
        return parse(headers, b"").attributes
    except NotAnEvent:
        return None


@given(
    st.lists(st.sampled_from(range(len(ALERT))), max_size=3),
    st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=4),
)
@example([], [])
@example([6], [(b"ce-datacontenttype", b"application/json")])
def test_they_are_those_of_the_sdk(left_out: list[int], others: Headers) -> None:
    kept = dict(header for n, header in enumerate(ALERT) if n not in left_out)
    headers = [*(kept | dict(others)).items()]
    if any(name in (b"ce-specversion", b"ce-id", b"ce-type") for name, _ in headers):
        assert parsed(headers) == sdk_attributes(headers)


def test_an_alert_has_them_and_a_key_does_not() -> None:
    expected = {
        name.decode().removeprefix("ce-"): value.decode()
        for name, value in ALERT
        if name.startswith(b"ce-") and name != b"ce-accesskey"
    }
    assert parsed(ALERT) == expected | {"datacontenttype": "application/avro"}


def without(name: bytes) -> Headers:
    return [header for header in ALERT if header[0] != name]


@pytest.mark.parametrize(
    "headers",
    [
        without(b"ce-id"),
        without(b"ce-type"),
        [*ALERT, (b"ce-type", b"again")],
        [*without(b"ce-subject"), (b"ce-subject", b"")],
        [*without(b"ce-subject"), (b"ce-subject", b"partition:3#x")],
        [*without(b"ce-time"), (b"ce-time", b"2025-11-24T22:00:00")],
        [],
    ],
)
def test_wrong_headers_are_refused(headers: Headers) -> None:
    assert parsed(headers) is None


@pytest.mark.parametrize(
    ("headers", "changed"),
    [
        ([*without(b"ce-subject"), (b"ce-subject", b"a%20b")], {"subject": "a b"}),
        ([*without(b"ce-specversion"), (b"ce-specversion", b"0.3")], {"specversion": "0.3"}),
        ([*ALERT, (b"ce-key", b"k" * SHORT_LENGTH)], {"key": "k" * SHORT_LENGTH}),
        ([*ALERT, *((b"x-%d" % n, b"") for n in range(32))], {}),
        ([*ALERT, (b"x" * 300, b"")], {}),
    ],
)
def test_odd_headers_are_accepted(headers: Headers, changed: dict[str, str]) -> None:
    assert parsed(headers) == parse(ALERT, b"").attributes | changed
