"""The attributes of plain headers are those that the CloudEvents SDK finds, or none are found."""

import time

from hypothesis import example, given
from hypothesis import strategies as st

from stampede.events.cloudevents.attributes import SHORT_LENGTH
from stampede.events.cloudevents.event import binary_attributes, check_time
from stampede.events.cloudevents.fast_attributes import MOST_HEADERS, PlainAttributes

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


def judged(headers: Headers) -> dict[str, str] | None:
    """The attributes as the SDK finds them; None if it refuses."""
    try:
        return binary_attributes({n.decode("latin-1"): v.decode("latin-1") for n, v in headers})
    except Exception:
        return None


def plain() -> PlainAttributes:
    return PlainAttributes(binary_attributes, check_time)


PLAIN = plain()  # keeps names from one example to the next, as in a function


@given(
    st.lists(st.sampled_from(range(len(ALERT))), max_size=3),
    st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=4),
)
@example([], [])
@example([6], [(b"ce-datacontenttype", b"application/json")])
def test_they_are_those_of_the_sdk(left_out: list[int], others: Headers) -> None:
    kept = dict(header for n, header in enumerate(ALERT) if n not in left_out)
    headers = [*(kept | dict(others)).items()]
    found = PLAIN.find(headers)
    assert found is None or found == judged(headers)


def test_an_alert_has_them_and_a_key_does_not() -> None:
    for _ in range(2):
        assert plain().find(ALERT) == judged(ALERT)
    assert "accesskey" not in (PLAIN.find(ALERT) or {"accesskey": ""})


def test_what_is_not_plain_is_left_to_the_sdk() -> None:
    def without(name: bytes) -> Headers:
        return [header for header in ALERT if header[0] != name]

    for odd in (
        without(b"ce-id"),
        without(b"ce-type"),
        [*ALERT, (b"ce-type", b"again")],
        [*without(b"ce-subject"), (b"ce-subject", b"")],
        [*without(b"ce-subject"), (b"ce-subject", b"a%20b")],
        [*without(b"ce-subject"), (b"ce-subject", b"partition:3#x")],
        [*without(b"ce-specversion"), (b"ce-specversion", b"0.3")],
        [*without(b"ce-time"), (b"ce-time", b"2025-11-24T22:00:00")],
        [*ALERT, (b"ce-key", b"k" * SHORT_LENGTH)],
        [*ALERT, *((b"x-%d" % n, b"") for n in range(MOST_HEADERS))],
        [*ALERT, (b"x" * 300, b"")],
        [],
    ):
        assert PLAIN.find(odd) is None


def test_it_is_less_work_than_the_sdk() -> None:
    def spent(parse: object) -> float:
        begin = time.process_time()
        for _ in range(300):
            parse()  # type: ignore[operator]
        return time.process_time() - begin

    fast = min(spent(lambda: PLAIN.find(ALERT)) for _ in range(5))
    assert fast < 0.7 * min(spent(lambda: judged(ALERT)) for _ in range(5))
