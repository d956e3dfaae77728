"""Group commit, with a store that the test controls."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from stampede.errors import StampedeError, StoreDown, Undecodable
from stampede.events.cloudevents.event import Event
from stampede.events.workers.batching import Batcher, Outcome, Pace

pytestmark = pytest.mark.anyio


def event(number: int, size: int = 10) -> Event:
    return Event({"id": str(number), "source": "test"}, bytes(size))


class StoreBatch:
    """Records every batch; takes `seconds`; waits while `gate` is closed; answers by `answer`."""

    def __init__(self, response=lambda each: None, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.answer = response
        self.at_once = self.most_at_once = 0

    async def __call__(self, events: Sequence[Event]) -> list[Outcome]:
        self.batches.append([int(each.attributes["id"]) for each in events])
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.seconds)
            await self.gate.wait()
        finally:
            self.at_once -= 1
        return [self.answer(each) for each in events]


def make_batcher(store_batch, **changes) -> Batcher:
    defaults = {
        **{"concurrency": 1, "most_events": 100, "most_bytes": 10_000},
        **{"linger": 0.01, "most_linger": 60.0},
    }
    return Batcher(store_batch, **{**defaults, **changes})


@asynccontextmanager
async def running(store_batch, **changes) -> AsyncIterator[Batcher]:
    async with asyncio.timeout(120), make_batcher(store_batch, **changes) as batcher:
        yield batcher


async def until(holds) -> None:
    while not holds():
        await asyncio.sleep(0.001)


async def test_while_one_batch_is_stored_the_next_one_fills() -> None:
    store_batch = StoreBatch()
    store_batch.gate.clear()
    async with running(store_batch) as batcher:
        first = asyncio.create_task(batcher.add(event(0)))
        await until(lambda: store_batch.batches)
        rest = [asyncio.create_task(batcher.add(event(number))) for number in range(1, 50)]
        await asyncio.sleep(0.05)
        assert store_batch.batches == [[0]]
        assert not first.done()  # nothing is answered before it is durable
        store_batch.gate.set()
        assert await asyncio.gather(first, *rest) == [None] * 50
        assert store_batch.batches == [[0], list(range(1, 50))]


async def test_a_lone_event_waits_no_longer_than_the_linger() -> None:
    async with running(StoreBatch(), linger=0.05) as batcher:
        begin = asyncio.get_running_loop().time()
        await batcher.add(event(1))
        assert 0.05 <= asyncio.get_running_loop().time() - begin < 0.5


@pytest.mark.parametrize(
    ("gap", "number"),
    [(0.005, 300), (0.08, 20)],  # seconds, shorter and longer than the linger
)
async def test_a_batch_of_a_stream_waits_for_more_but_no_event_for_too_long(
    gap: float, number: int
) -> None:
    """With the linger alone there would be about 15 batches, and 20."""
    store_batch, loop, waited = StoreBatch(seconds=0.1), asyncio.get_running_loop(), list[float]()

    async def add(number: int) -> None:
        begin = loop.time()
        await batcher.add(event(number))
        waited.append(loop.time() - begin)

    async with running(store_batch, concurrency=2, linger=0.05, most_linger=2.0) as batcher:
        added = []
        for each in range(number):
            added.append(asyncio.create_task(add(each)))
            await asyncio.sleep(gap)
        await asyncio.gather(*added)
    assert len(store_batch.batches) <= 8
    assert max(waited) < 3.0


async def test_a_sender_with_one_event_in_flight_waits_for_the_linger_alone() -> None:
    loop = asyncio.get_running_loop()
    async with running(StoreBatch(seconds=0.02), linger=0.02, most_linger=10.0) as batcher:
        begin = loop.time()
        for number in range(30):
            await batcher.add(event(number))
        assert loop.time() - begin < 6.0


async def test_the_most_is_never_less_than_the_linger() -> None:
    store_batch = StoreBatch()
    async with running(store_batch, linger=0.3, most_linger=0.0) as batcher:
        first = asyncio.create_task(batcher.add(event(0)))
        await asyncio.sleep(0.05)
        await asyncio.gather(first, batcher.add(event(1)))
    assert store_batch.batches == [[0, 1]]


async def test_an_event_after_a_pause_waits_for_the_linger_alone() -> None:
    store_batch, loop = StoreBatch(), asyncio.get_running_loop()
    async with running(store_batch, linger=0.05, most_linger=2.0) as batcher:
        await asyncio.gather(*(batcher.add(event(number)) for number in range(50)))
        await asyncio.sleep(0.6)
        begin = loop.time()
        await batcher.add(event(50))
        assert loop.time() - begin < 0.5
    assert store_batch.batches == [[*range(50)], [50]]


async def test_events_that_all_wait_for_one_batch_are_stored_after_the_linger() -> None:
    """So a source whose events in flight all wait here does not wait for the most."""
    loop = asyncio.get_running_loop()
    async with running(StoreBatch(), linger=0.05, most_linger=10.0) as batcher:
        for _ in range(5):
            begin = loop.time()
            await asyncio.gather(*(batcher.add(event(number)) for number in range(50)))
            assert loop.time() - begin < 2.0


def test_the_pace_follows_events_that_meet_others() -> None:
    pace, now = Pace(), 100.0
    pace.note(now, lone=True)
    assert pace.gap == math.inf  # nothing is known yet
    for _ in range(40):
        now += 0.01
        pace.note(now, lone=False)
    assert pace.gap == pytest.approx(0.01)
    now += 0.5
    pace.note(now, lone=False)
    assert pace.gap == pytest.approx(0.5)  # a pause shows at once
    now += 0.01
    pace.note(now, lone=False)
    assert 0.01 < pace.gap < 0.1
    pace.note(now + 60.0, lone=True)
    assert pace.gap == math.inf


async def test_a_full_batch_does_not_linger() -> None:
    store_batch = StoreBatch()
    async with running(store_batch, most_events=5, linger=60.0) as batcher:
        await asyncio.gather(*(batcher.add(event(number)) for number in range(5)))
        assert store_batch.batches == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("bounds", "sizes", "batches"),
    [
        ({"most_events": 3}, [10] * 7, [[0, 1, 2], [3, 4, 5], [6]]),
        ({"most_bytes": 100}, [40] * 5, [[0, 1], [2, 3], [4]]),
        (
            {"most_bytes": 100},
            [10, 500, 10],
            [[0], [1], [2]],
        ),  # a single event may exceed the bound
    ],
)
async def test_bounds_of_a_batch(bounds: dict, sizes: list[int], batches: list[list[int]]) -> None:
    store_batch = StoreBatch()
    async with running(store_batch, **bounds) as batcher:
        await asyncio.gather(*(batcher.add(event(n, size)) for n, size in enumerate(sizes)))
        assert store_batch.batches == batches


async def test_several_batches_are_stored_at_once() -> None:
    store_batch = StoreBatch()
    store_batch.gate.clear()
    async with running(store_batch, concurrency=3, most_events=1) as batcher:
        added = [asyncio.create_task(batcher.add(event(number))) for number in range(9)]
        await until(lambda: store_batch.at_once == 3)
        await asyncio.sleep(0.05)
        assert store_batch.most_at_once == 3
        store_batch.gate.set()
        assert await asyncio.gather(*added) == [None] * 9
        assert store_batch.most_at_once == 3


async def test_each_gets_its_own_outcome() -> None:
    bad = Undecodable("no alert")
    async with running(
        StoreBatch(lambda each: bad if each.attributes["id"] == "1" else None)
    ) as batcher:
        assert await asyncio.gather(*(batcher.add(event(n)) for n in range(3))) == [None, bad, None]


def wrong_number(events: Sequence[Event]) -> list[Outcome]:
    return [None] * (len(events) + 1)


def store_down(events: Sequence[Event]) -> list[Outcome]:
    raise StoreDown("away")


def bug(events: Sequence[Event]) -> list[Outcome]:
    raise KeyError("a bug")


@pytest.mark.parametrize(
    ("failing", "status"), [(store_down, 503), (bug, 500), (wrong_number, 500)]
)
async def test_a_failing_batch_fails_no_other(failing, status: int) -> None:
    fail = True

    async def store_batch(events: Sequence[Event]) -> Sequence[Outcome]:
        return failing(events) if fail else [None] * len(events)

    async with running(store_batch) as batcher:
        outcomes = await asyncio.gather(*(batcher.add(event(n)) for n in range(3)))
        assert [outcome and outcome.status for outcome in outcomes] == [status] * 3
        assert all(isinstance(outcome, StampedeError) for outcome in outcomes)
        fail = False
        assert await batcher.add(event(4)) is None


async def test_closing_stores_waiting_events_without_lingering() -> None:
    store_batch = StoreBatch()
    store_batch.gate.clear()
    stack = AsyncExitStack()
    batcher = await stack.enter_async_context(make_batcher(store_batch))
    first = asyncio.create_task(batcher.add(event(0)))
    await until(lambda: store_batch.batches)
    added = [asyncio.create_task(batcher.add(event(number))) for number in range(1, 4)]
    closing = asyncio.create_task(stack.aclose())
    await asyncio.sleep(0.02)
    assert not closing.done()
    store_batch.gate.set()
    await closing
    assert await asyncio.gather(first, *added) == [None] * 4
    assert store_batch.batches == [[0], [1, 2, 3]]


async def test_a_cancelled_event_does_not_affect_the_others() -> None:
    store_batch = StoreBatch()
    store_batch.gate.clear()
    async with running(store_batch) as batcher:
        added = [asyncio.create_task(batcher.add(event(number))) for number in range(3)]
        await until(lambda: store_batch.batches)
        added[1].cancel()
        with suppress(asyncio.CancelledError):
            await added[1]
        store_batch.gate.set()
        assert await added[0] is None
        assert await added[2] is None
        assert await batcher.add(event(4)) is None
