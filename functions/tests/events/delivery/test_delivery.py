"""An event at the sink, or at the dead-letter sink."""

import base64
import time

import pytest
from prometheus_client import REGISTRY

from tests.support.events.delivering import EVENT_HEADERS, during, one, record
from tests.support.events.receiver import Received, Receiver, Reply

pytestmark = pytest.mark.anyio


async def test_an_accepted_event_is_sent_once_and_unchanged() -> None:
    with Receiver() as sink:
        await during(one(), sink)
    (event,) = sink.requests
    assert event.body == b"alert"
    assert set(event.headers) == {*EVENT_HEADERS.headers(record()), "host", "content-length"}


async def test_a_large_event_is_sent_whole() -> None:
    large = bytes(range(256)) * 20_000
    with Receiver() as sink:
        await during(one(record(value=large)), sink)
    assert sink.accepted[0].body == large


async def test_an_event_that_fails_at_first() -> None:
    def answer(event: Received, times: int) -> Reply:
        return ([500, 429, 409, 204][times - 1], b"", {})

    with Receiver(answer) as sink, Receiver() as dead:
        await during(one(), sink, dead)
    assert (len(sink.requests), len(dead.requests)) == (4, 0)


async def test_retry_after_is_honoured() -> None:
    with Receiver(
        lambda event, times: (500, b"", {"retry-after": "1"}) if times == 1 else (204, b"", {})
    ) as sink:
        begin = time.monotonic()
        await during(one(), sink)
        assert time.monotonic() - begin >= 1


@pytest.mark.parametrize(
    ("status", "tries"), [(400, 1), (413, 1), (422, 1), (301, 1), (500, 4), (408, 4)]
)
async def test_a_refused_event_is_a_dead_letter(status: int, tries: int) -> None:
    reason = b"not an alert: " + bytes(2000)
    with Receiver(lambda event, times: (status, reason, {})) as sink, Receiver() as dead:
        await during(one(), sink, dead, retries=3)
    assert len(sink.requests) == tries
    (letter,) = dead.accepted
    assert letter.body == b"alert"
    added = {name: value for name, value in letter.headers.items() if "knativeerror" in name}
    assert added == {
        "ce-knativeerrordest": sink.url,
        "ce-knativeerrorcode": str(status),
        "ce-knativeerrordata": base64.b64encode(reason[:1024]).decode(),
    }
    rest = {name: value for name, value in letter.headers.items() if name not in added}
    assert rest | {"host": ""} == sink.requests[0].headers | {"host": ""}


async def test_without_a_dead_letter_sink_an_event_is_stuck() -> None:
    def stuck() -> float:
        return REGISTRY.get_sample_value("stampede_source_stuck_events", {"sink": "sink"}) or 0

    seen = []

    def answer(event: Received, times: int) -> Reply:
        seen.append(stuck())
        return (400 if times < 6 else 204, b"no", {})

    with Receiver(answer) as sink:
        await during(one(), sink)
    assert seen == [0, 1, 1, 1, 1, 1]
    assert stuck() == 0


async def test_a_failing_dead_letter_sink_is_retried_for_ever() -> None:
    with (
        Receiver(lambda event, times: (400, b"", {})) as sink,
        Receiver(lambda event, times: (400 if times < 8 else 204, b"", {})) as dead,
    ):
        await during(one(), sink, dead, retries=1)
    assert (len(sink.requests), len(dead.requests)) == (1, 8)
