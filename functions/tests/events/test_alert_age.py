"""The metric of the time from Kafka to the store."""

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import REGISTRY

from stampede.errors import StampedeError, StoreDown
from stampede.events.alert_age import observing_age
from stampede.events.event import Event

pytestmark = pytest.mark.anyio


def seen(name: str, what: str = "count") -> float:
    value = REGISTRY.get_sample_value(f"stampede_alert_age_seconds_{what}", {"function": name})
    return value or 0.0


def event(time: str | None) -> Event:
    attributes = {"id": "1", "source": "a"} | ({"time": time} if time else {})
    return Event(attributes, b"")


async def test_the_age_of_a_stored_alert_is_observed() -> None:
    async def stored(_: Event) -> StampedeError | None:
        return None

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
    async def stored(_: Event) -> StampedeError | None:
        return None

    await observing_age("age-3", stored)(event("2999-01-01T00:00:00Z"))
    assert seen("age-3", "sum") == 0
