"""How old a listing may be that an answer comes from."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from stampede.read.lookup import RefreshingTable
from stampede.store.coverage import Coverage
from stampede.store.memory import MemoryObjects
from stampede.store.schema import DETECTIONS
from stampede.store.tables import Table
from tests.store.test_tables import many

AGE = 2.0  # seconds
ID = "000001"


class Held(Table):
    """A table whose listing takes until it is let go on."""

    def __init__(self) -> None:
        super().__init__(MemoryObjects(), DETECTIONS)
        self.begun, self.gate = threading.Event(), threading.Event()
        self.gate.set()

    def refresh(self) -> None:
        self.begun.set()
        assert self.gate.wait(60)
        super().refresh()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time; a test sets it."""
    time = [1000.0]
    monkeypatch.setattr("stampede.read.lookup.time", SimpleNamespace(monotonic=lambda: time[0]))
    return time


@pytest.fixture
def fresh(now: list[float]) -> RefreshingTable:
    """One that has listed a first version of a point."""
    fresh = RefreshingTable(Held(), AGE, sure=True)
    store(fresh, 0)
    assert version(fresh.lookup) == 0
    return fresh


@pytest.fixture
def aside() -> Iterator[Callable[..., Future]]:
    """Does something in another thread."""
    with ThreadPoolExecutor(4) as pool:
        yield pool.submit


def store(fresh: RefreshingTable, number: int) -> None:
    fresh.table.append(many(3, 1, number), Coverage.of({("alerts", 0): [number]}))


def version(look: Callable) -> float | None:
    """Which version of the point a look-up gives."""
    rows = look([ID])
    return None if rows is None else rows["flux"].to_pylist()[0]


def renewing(fresh: RefreshingTable, aside: Callable[..., Future]) -> Future:
    """A look-up that lists, and does not come to its end."""
    fresh.table.begun.clear()
    fresh.table.gate.clear()
    first = aside(version, fresh.lookup)
    assert fresh.table.begun.wait(60)
    return first


def test_a_listing_is_used_as_long_as_it_may(fresh: RefreshingTable, now: list[float]) -> None:
    store(fresh, 1)
    now[0] += AGE
    assert version(fresh.lookup) == version(fresh.kept) == 0
    now[0] += 0.1
    assert version(fresh.kept) is None
    assert version(fresh.lookup) == 1
    assert version(fresh.kept) == 1


def test_while_one_renews_it_the_others_go_on(
    fresh: RefreshingTable, now: list[float], aside
) -> None:
    store(fresh, 1)
    now[0] += 1.5 * AGE
    first = renewing(fresh, aside)
    assert version(fresh.lookup) == version(fresh.kept) == 0
    fresh.table.gate.set()
    assert first.result() == 1


def test_nobody_goes_on_with_what_is_twice_as_old(
    fresh: RefreshingTable, now: list[float], aside
) -> None:
    """After an idle hour the second to ask is told no older things than the first."""
    store(fresh, 1)
    now[0] += 3600
    first = renewing(fresh, aside)
    assert version(fresh.kept) is None
    second = aside(version, fresh.lookup)
    with pytest.raises(TimeoutError):
        second.result(0.3)
    fresh.table.gate.set()
    assert first.result() == second.result() == 1


def test_nobody_waits_for_a_store_that_hangs(
    fresh: RefreshingTable, now: list[float], aside
) -> None:
    store(fresh, 1)
    now[0] += 3600
    first = renewing(fresh, aside)
    now[0] += AGE
    assert version(fresh.lookup) == version(fresh.kept) == 0
    fresh.table.gate.set()
    assert first.result() == 1


def test_what_is_not_there_is_looked_for_again(fresh: RefreshingTable, now: list[float]) -> None:
    now[0] += AGE / 2
    fresh.table.append(many(9, 1, 1), Coverage.of({("alerts", 0): [1]}))
    assert fresh.lookup(["000008"]).num_rows == 1
