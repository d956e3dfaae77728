"""The time that alerts are judged by is the store's, however wrong this machine's clock is."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.errors import StoreDown
from stampede.events.workers.worker import Batch
from stampede.handlers import cutouts, lightcurves
from stampede.runtime import clock
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.store_clock import ASK_SECONDS, StoreClock
from stampede_simulator.simulator import Simulator
from tests.support.store.watched_objects import Forwarding

YEAR = 365 * 86400.0
NIGHT = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.mark.parametrize("years", [-10, 0, 10])
@pytest.mark.parametrize("function", [cutouts, lightcurves])
def test_no_alert_is_refused_because_a_clock_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function, years: int
) -> None:
    today, now = datetime.now(UTC), time.time
    monkeypatch.setattr(clock.time, "time", lambda: now() + years * YEAR)
    assert abs(clock.now() - today - timedelta(days=365 * years)) < timedelta(hours=1)
    alerts = [alert.body for alert in Simulator(1).alerts(20)]
    store = function.make_batch_storer(Settings(store=f"file://{tmp_path}"))
    assert store(Batch(alerts, [None] * 20)).outcomes == [None] * 20


def test_the_store_is_asked_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ticks = [], [1000.0]

    class Asked(Forwarding):
        def now(self) -> datetime:
            asked.append(ticks[0])
            return self.inner.now()

    monkeypatch.setattr("time.monotonic", lambda: ticks[0])
    store = StoreClock(Asked(MemoryObjects(lambda: NIGHT)))
    store.refresh()
    assert store.now_mjd() == clock.mjd(NIGHT)
    ticks[0] += ASK_SECONDS / 2
    store.refresh()
    assert store.now_mjd() == pytest.approx(clock.mjd(NIGHT) + ASK_SECONDS / 2 / 86400, abs=1e-9)
    ticks[0] += ASK_SECONDS / 2
    store.refresh()
    assert store.now_mjd() == clock.mjd(NIGHT)
    assert len(asked) == 2


def test_without_the_store_there_is_no_time() -> None:
    class Down(Forwarding):
        def now(self) -> datetime:
            raise StoreDown("no answer")

    with pytest.raises(StoreDown):
        StoreClock(Down(MemoryObjects(lambda: NIGHT))).refresh()
