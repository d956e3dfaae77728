"""Group commit, driven by a flush that the test holds in its hands."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

import pytest

from stampede.errors import Overloaded, StampedeError, StoreDown, Undecodable
from stampede.events.batching import Batcher, Outcome
from stampede.events.event import Event


def event(number: int, size: int = 10) -> Event:
    return Event({"id": str(number), "source": "test"}, bytes(size))


class Flush:
    """Notes every batch; waits where `gate` is closed; answers what `answer` says."""

    def __init__(self, answer=lambda each: None) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.answer = answer
        self.at_once = self.most_at_once = 0

    async def __call__(self, events: Sequence[Event]) -> list[Outcome]:
        self.batches.append([int(each.attributes["id"]) for each in events])
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.gate.wait()
        finally:
            self.at_once -= 1
        return [self.answer(each) for each in events]


def batcher(flush, **changes) -> Batcher:
    usual = {
        **{"lanes": 1, "most_events": 100, "most_bytes": 10_000, "held_bytes": 100_000},
        "linger": 0.01,
    }
    return Batcher(flush, **{**usual, **changes})


def run(test: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        await asyncio.wait_for(test, 120)

    asyncio.run(in_time())


async def until(holds) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def test_while_one_flush_is_under_way_the_next_batch_gathers() -> None:
    async def test() -> None:
        flush = Flush()
        flush.gate.clear()
        own = batcher(flush)
        first = asyncio.create_task(own.add(event(0)))
        await until(lambda: flush.batches)
        rest = [asyncio.create_task(own.add(event(number))) for number in range(1, 50)]
        await asyncio.sleep(0.05)
        assert flush.batches == [[0]]
        assert not first.done()  # nothing is answered before it is durable
        flush.gate.set()
        assert await asyncio.gather(first, *rest) == [None] * 50
        assert flush.batches == [[0], list(range(1, 50))]
        assert own.held == 0
        await own.close()

    run(test())


def test_a_lone_event_waits_no_longer_than_the_linger() -> None:
    async def test() -> None:
        own = batcher(Flush(), linger=0.05)
        begin = asyncio.get_running_loop().time()
        await own.add(event(1))
        assert 0.05 <= asyncio.get_running_loop().time() - begin < 0.5
        await own.close()

    run(test())


def test_a_full_batch_does_not_linger() -> None:
    async def test() -> None:
        flush = Flush()
        own = batcher(flush, most_events=5, linger=60.0)
        await asyncio.gather(*(own.add(event(number)) for number in range(5)))
        assert flush.batches == [[0, 1, 2, 3, 4]]
        await own.close()

    run(test())


@pytest.mark.parametrize(
    ("bounds", "sizes", "batches"),
    [
        ({"most_events": 3}, [10] * 7, [[0, 1, 2], [3, 4, 5], [6]]),
        ({"most_bytes": 100}, [40] * 5, [[0, 1], [2, 3], [4]]),
        ({"most_bytes": 100}, [10, 500, 10], [[0], [1], [2]]),  # one alone may exceed it
    ],
)
def test_bounds_of_a_batch(bounds: dict, sizes: list[int], batches: list[list[int]]) -> None:
    async def test() -> None:
        flush = Flush()
        own = batcher(flush, **bounds)
        await asyncio.gather(*(own.add(event(n, size)) for n, size in enumerate(sizes)))
        assert flush.batches == batches
        await own.close()

    run(test())


def test_lanes_flush_at_once() -> None:
    async def test() -> None:
        flush = Flush()
        flush.gate.clear()
        own = batcher(flush, lanes=3, most_events=1)
        added = [asyncio.create_task(own.add(event(number))) for number in range(9)]
        await until(lambda: flush.at_once == 3)
        await asyncio.sleep(0.05)
        assert flush.most_at_once == 3
        flush.gate.set()
        assert await asyncio.gather(*added) == [None] * 9
        assert flush.most_at_once == 3
        await own.close()

    run(test())


def test_too_much_held_is_refused_at_once_and_taken_later() -> None:
    async def test() -> None:
        flush = Flush()
        flush.gate.clear()
        own = batcher(flush, held_bytes=100)
        held = [asyncio.create_task(own.add(event(number, 50))) for number in range(2)]
        await until(lambda: own.held == 100)
        with pytest.raises(Overloaded) as refused:
            await own.add(event(2, 1))
        assert refused.value.status == 429
        flush.gate.set()
        assert await asyncio.gather(*held) == [None, None]
        # However large, one event is taken where nothing else is held.
        assert await own.add(event(3, 5000)) is None
        assert own.held == 0
        await own.close()

    run(test())


def test_each_gets_its_own_verdict() -> None:
    async def test() -> None:
        bad = Undecodable("no alert")
        own = batcher(Flush(lambda each: bad if each.attributes["id"] == "1" else None))
        assert await asyncio.gather(*(own.add(event(n)) for n in range(3))) == [None, bad, None]
        await own.close()

    run(test())


def wrong_number(events: Sequence[Event]) -> list[Outcome]:
    return [None] * (len(events) + 1)


def store_down(events: Sequence[Event]) -> list[Outcome]:
    raise StoreDown("away")


def bug(events: Sequence[Event]) -> list[Outcome]:
    raise KeyError("a bug")


@pytest.mark.parametrize(
    ("failing", "status"), [(store_down, 503), (bug, 500), (wrong_number, 500)]
)
def test_a_failing_flush_fails_its_batch_and_no_other(failing, status: int) -> None:
    async def test() -> None:
        fail = True

        async def flush(events: Sequence[Event]) -> Sequence[Outcome]:
            return failing(events) if fail else [None] * len(events)

        own = batcher(flush)
        verdicts = await asyncio.gather(*(own.add(event(n)) for n in range(3)))
        assert [verdict and verdict.status for verdict in verdicts] == [status] * 3
        assert all(isinstance(verdict, StampedeError) for verdict in verdicts)
        fail = False
        assert await own.add(event(4)) is None
        await own.close()

    run(test())


def test_close_flushes_what_waits_without_lingering() -> None:
    async def test() -> None:
        flush = Flush()
        flush.gate.clear()
        own = batcher(flush)
        first = asyncio.create_task(own.add(event(0)))
        await until(lambda: flush.batches)
        added = [asyncio.create_task(own.add(event(number))) for number in range(1, 4)]
        closing = asyncio.create_task(own.close())
        await asyncio.sleep(0.02)
        assert not closing.done()
        flush.gate.set()
        await closing
        assert await asyncio.gather(first, *added) == [None] * 4
        assert flush.batches == [[0], [1, 2, 3]]

    run(test())


def test_a_sender_that_goes_away_harms_nobody() -> None:
    async def test() -> None:
        flush = Flush()
        flush.gate.clear()
        own = batcher(flush)
        added = [asyncio.create_task(own.add(event(number))) for number in range(3)]
        await until(lambda: flush.batches)
        added[1].cancel()
        with suppress(asyncio.CancelledError):
            await added[1]
        flush.gate.set()
        assert await added[0] is None
        assert await added[2] is None
        assert own.held == 0
        assert await own.add(event(4)) is None
        await own.close()

    run(test())
