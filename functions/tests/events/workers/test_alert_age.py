"""The metric of the time from Kafka to the store."""

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import REGISTRY

from stampede.errors import StampedeError, StoreDown
from stampede.events.cloudevents.event import Event
from stampede.events.cloudevents.kafka_record import CloudEventHeaders, Record
from stampede.events.workers.alert_age import observing_age

pytestmark = pytest.mark.anyio


def seen(name: str, what: str = "count") -> float:
    value = REGISTRY.get_sample_value(f"stampede_alert_age_seconds_{what}", {"function": name})
    return value or 0.0


def event(time: str | None, **more: str) -> Event:
    attributes = {"id": "1", "source": "a"} | ({"time": time} if time else {})
    return Event(attributes | more, b"")


async def stored(_: Event) -> StampedeError | None:
    return None


async def test_the_age_of_a_stored_alert_is_observed() -> None:
    before = (datetime.now(UTC) - timedelta(seconds=90)).isoformat()
    assert await observing_age("age-1", stored)(event(before)) is None
    assert seen("age-1") == 1
    assert 90 <= seen("age-1", "sum") < 100


async def test_neither_a_refused_alert_nor_one_without_a_time_counts() -> None:
    outcomes: list[StampedeError | None] = [StoreDown("down"), None]

    async def handle(_: Event) -> StampedeError | None:
        return outcomes.pop(0)

    observed = observing_age("age-2", handle)
    assert isinstance(await observed(event("2026-01-01T00:00:00Z")), StoreDown)
    assert await observed(event(None)) is None
    assert seen("age-2") == 0


async def test_a_clock_that_is_ahead_gives_no_negative_age() -> None:
    await observing_age("age-3", stored)(event("2999-01-01T00:00:00Z"))
    assert seen("age-3", "sum") == 0


def sent_by_rubin(seconds: float) -> dict[str, str]:
    """The attribute of a record with Rubin's header, as it sends it."""
    record = Record(
        *("lsst-alerts", 0, 1, None, None),
        headers=[("producer_timestamp", str(seconds * 1000).encode())],
        value=b"",
    )
    headers = CloudEventHeaders("sky", "lsst", {}).headers(record)
    return {
        name.removeprefix("ce-"): value for name, value in headers.items() if "timestamp" in name
    }


async def test_the_time_at_which_rubin_sent_an_alert_is_before_that_of_kafka() -> None:
    now = datetime.now(UTC)
    kafka = (now - timedelta(seconds=5)).isoformat()
    await observing_age("age-4", stored)(event(kafka, **sent_by_rubin(now.timestamp() - 300)))
    await observing_age("age-4", stored)(event(None, **sent_by_rubin(now.timestamp() - 300)))
    assert seen("age-4") == 2
    assert 600 <= seen("age-4", "sum") < 620


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "-5", "0", "2026-11-23T00:00:00Z"])
async def test_a_header_that_is_no_time_leaves_kafka_s(text: str) -> None:
    before = (datetime.now(UTC) - timedelta(seconds=90)).isoformat()
    name = f"age-5-{text}"
    await observing_age(name, stored)(event(before, kafkaheaderproducertimestamp=text))
    assert 90 <= seen(name, "sum") < 100
