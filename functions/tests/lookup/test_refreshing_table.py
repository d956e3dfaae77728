"""How old the listing behind a response may be."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import pyarrow as pa
import pytest
from prometheus_client import REGISTRY

from stampede.errors import StoreDown
from stampede.lookup.refreshing_table import RefreshingTable
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from tests.support.store.rows import many

AGE, STALE = 2.0, 4000.0  # seconds
ID = "000001"


class HeldTable(Table):
    """A table whose listing waits until `gate` is set."""

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
    """The clock; a test sets it."""
    time = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: time[0])
    for module in ("refreshing_table", "refresher"):
        monkeypatch.setattr(f"stampede.lookup.{module}.time", clock)
    return time


@pytest.fixture
def table(now: list[float]) -> RefreshingTable:
    """A table that has listed the first version of a point."""
    table = RefreshingTable(HeldTable(), AGE, miss_age=0.0, stale=STALE)
    store(table, 0)
    assert version(table.lookup) == 0
    return table


@pytest.fixture
def in_thread() -> Iterator[Callable[..., Future]]:
    """Runs a function in another thread."""
    with ThreadPoolExecutor(4) as pool:
        yield pool.submit


def store(table: RefreshingTable, number: int) -> None:
    table.table.append(many(3, 1, number), Coverage.of({("alerts", 0): [number]}))


def version(lookup: Callable) -> float | None:
    """The version of the point that a lookup returns."""
    return flux(lookup([ID]))


def cached_version(table: RefreshingTable) -> float | None:
    """The version of the point that memory holds."""
    places = table.cached_places(ID)
    return None if places is None else flux(table.rows_at(places))


def flux(rows: pa.Table | None) -> float | None:
    return None if rows is None else rows["flux"].to_pylist()[0]


def start_listing(table: RefreshingTable, in_thread: Callable[..., Future]) -> Future:
    """A lookup that lists and waits for `gate`."""
    table.table.begun.clear()
    table.table.gate.clear()
    first = in_thread(version, table.lookup)
    assert table.table.begun.wait(60)
    return first


def test_a_listing_is_used_until_it_is_too_old(table: RefreshingTable, now: list[float]) -> None:
    store(table, 1)
    now[0] += AGE
    assert version(table.lookup) == cached_version(table) == 0
    now[0] += 0.1
    assert cached_version(table) is None
    assert version(table.lookup) == 1
    assert cached_version(table) == 1


def test_the_age_of_what_answers_are_made_from_is_observed(
    table: RefreshingTable, now: list[float]
) -> None:
    """Not that of a lookup which only asks memory, and finds that it must list."""

    def observed(what: str) -> float:
        name = f"stampede_read_view_age_seconds_{what}"
        return REGISTRY.get_sample_value(name, {"table": DETECTIONS.name}) or 0.0

    responses, seconds = observed("count"), observed("sum")
    now[0] += AGE
    version(table.lookup)
    cached_version(table)
    assert (observed("count") - responses, observed("sum") - seconds) == (2, 2 * AGE)
    now[0] += 0.1
    assert cached_version(table) is None
    version(table.lookup)  # lists
    assert (observed("count") - responses, observed("sum") - seconds) == (3, 2 * AGE)


def test_while_one_lookup_lists_others_use_the_old_listing(
    table: RefreshingTable, now: list[float], in_thread
) -> None:
    store(table, 1)
    now[0] += 1.5 * AGE
    first = start_listing(table, in_thread)
    assert version(table.lookup) == cached_version(table) == 0
    table.table.gate.set()
    assert first.result() == 1


def test_of_those_who_find_the_listing_too_old_the_first_alone_has_to_list(
    table: RefreshingTable, now: list[float]
) -> None:
    """A server would send each of them to a thread, and all of them would wait for each other."""
    for _ in range(2):
        now[0] += 1.1 * AGE
        assert table.cached_places(ID) is None  # it calls `lookup`, which lists
        assert cached_version(table) == 0
        assert version(table.lookup) == 0
        assert cached_version(table) == 0
    now[0] += 1.1 * AGE
    assert table.cached_places(ID) is None  # and its client goes away
    now[0] += AGE
    assert table.cached_places(ID) is None
    assert table.cached_places(ID) is None
    assert version(table.lookup) == 0
    assert cached_version(table) == 0


def test_a_lookup_waits_if_the_listing_is_twice_too_old(
    table: RefreshingTable, now: list[float], in_thread
) -> None:
    """After an idle hour no second reader gets older data than the first."""
    store(table, 1)
    now[0] += 3600
    first = start_listing(table, in_thread)
    assert cached_version(table) is None
    second = in_thread(version, table.lookup)
    with pytest.raises(TimeoutError):
        second.result(0.3)
    table.table.gate.set()
    assert first.result() == second.result() == 1


def test_no_lookup_waits_for_a_store_that_hangs(
    table: RefreshingTable, now: list[float], in_thread
) -> None:
    store(table, 1)
    now[0] += 3600
    first = start_listing(table, in_thread)
    now[0] += AGE
    assert version(table.lookup) == cached_version(table) == 0
    now[0] += STALE
    with pytest.raises(StoreDown, match="last listed"):
        table.lookup([ID])
    table.table.gate.set()
    with pytest.raises(StoreDown, match="last listed"):
        first.result()
    assert version(table.lookup) == 1


def test_a_miss_lists_again(table: RefreshingTable, now: list[float]) -> None:
    now[0] += AGE / 2
    table.table.append(many(9, 1, 1), Coverage.of({("alerts", 0): [1]}))
    assert table.lookup(["000008"]).num_rows == 1
