"""A sink that is down for a while, or fails for one event."""

import asyncio
import base64
import random
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from stampede.events.delivery.delivery import Delivery
from stampede.events.delivery.sink import Abandoned
from tests.support.events.delivering import deliver, during, one, record, until_down
from tests.support.events.receiver import Received, Receiver, Reply

pytestmark = pytest.mark.anyio


async def test_a_sink_that_is_down_gets_no_storm_and_makes_no_dead_letters() -> None:
    down_until = time.monotonic() + 1

    def answer(event: Received, times: int) -> Reply:
        return (503 if time.monotonic() < down_until else 204, b"store-down", {})

    with Receiver(answer) as sink, Receiver() as dead:
        await during(one(*(record(i) for i in range(50))), sink, dead, retries=0)
    assert {event.id for event in sink.accepted} == {f"partition:0/offset:{i}" for i in range(50)}
    assert len(dead.requests) == 0
    # Each event is sent twice; then single probes follow with growing pauses.
    assert len(sink.requests) < 50 + 50 + 15


async def test_events_wait_for_a_sink_that_does_not_listen() -> None:
    sink = Receiver()

    async def test(delivery: Delivery, stop: asyncio.Event) -> None:
        task = asyncio.create_task(deliver(delivery, record(0), record(1)))
        await until_down(delivery)
        with sink:
            await task
            assert not delivery.down

    with Receiver() as dead:
        await during(test, sink, dead, retries=0)
    assert (len(sink.accepted), len(dead.requests)) == (2, 0)


async def test_one_event_that_breaks_a_working_sink_is_a_dead_letter() -> None:
    """An ingress answers 502 for a function that died: the sink's fault unless others pass."""

    def answer(event: Received, times: int) -> Reply:
        return (502 if event.id.endswith(":0") else 204, b"", {})

    async def test(delivery: Delivery, stop: asyncio.Event) -> None:
        task = asyncio.create_task(deliver(delivery, record(0)))
        for i in range(1, 10_000):
            await deliver(delivery, record(i))
            if task.done():
                return

    with Receiver(answer) as sink, Receiver() as dead:
        await during(test, sink, dead, retries=2)
    assert [event.id for event in dead.accepted] == ["partition:0/offset:0"]


def failing(*numbers: int, status: int = 503) -> Callable[[Received, int], Reply]:
    """Answer this status to these events, and accept the others."""
    ids = {f"partition:0/offset:{number}" for number in numbers}
    return lambda event, times: (status if event.id in ids else 204, b"because", {})


async def deliver_beside(delivery: Delivery, *bad: int) -> None:
    """Deliver these events, and others until they are done."""
    task = asyncio.create_task(deliver(delivery, *map(record, bad)))
    for number in range(100, 20_000):
        await deliver(delivery, record(number))
        if task.done():
            return


@pytest.mark.parametrize("status", [503, 404, 502])
async def test_an_event_that_fails_alone_is_given_up(status: int) -> None:
    """503 is for the store; but the store is up for all other events."""

    async def test(delivery: Delivery, stop: asyncio.Event) -> None:
        await deliver_beside(delivery, 0)

    with Receiver(failing(0, status=status)) as sink, Receiver() as dead:
        await during(test, sink, dead, retries=10_000, give_up=0.5)
    (letter,) = dead.accepted
    assert letter.id == "partition:0/offset:0"
    assert letter.headers["ce-knativeerrorcode"] == str(status)
    assert base64.b64decode(letter.headers["ce-knativeerrordata"]) == b"because"


async def test_several_events_that_fail_are_given_up() -> None:
    async def test(delivery: Delivery, stop: asyncio.Event) -> None:
        await deliver_beside(delivery, *range(10))

    with Receiver(failing(*range(10))) as sink, Receiver() as dead:
        await during(test, sink, dead, retries=3, give_up=0.5)
    assert {letter.body for letter in dead.accepted} == {b"alert"}
    assert len(dead.accepted) == 10


async def test_a_store_that_fails_now_and_then_makes_no_dead_letters() -> None:
    """Half of the requests fail, of whatever event: that is the store."""
    rng = random.Random(1)

    def answer(event: Received, times: int) -> Reply:
        return (503 if rng.random() < 0.5 else 204, b"", {})

    async def test(delivery: Delivery, stop: asyncio.Event) -> None:
        await deliver(delivery, *map(record, range(200)))

    with Receiver(answer) as sink, Receiver() as dead:
        await during(test, sink, dead, retries=3, backoff=0.001, give_up=0.05)
    assert (len(sink.accepted), len(dead.requests)) == (200, 0)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_wrong_key_makes_no_dead_letters(status: int) -> None:
    def answer(event: Received, times: int) -> Reply:
        return (status if times < 6 else 204, b"", {})

    with Receiver(answer) as sink, Receiver() as dead:
        await during(one(), sink, dead, retries=0)
    assert (len(sink.accepted), len(dead.requests)) == (1, 0)


async def test_a_lone_failure_does_not_hold_the_others_up() -> None:
    """The sink is not taken for down because one event gets 503."""
    seen = []

    async def test(delivery: Delivery, stop: asyncio.Event) -> None:
        task = asyncio.create_task(deliver(delivery, record(0)))
        for number in range(100, 2000):
            await deliver(delivery, record(number))
            if number > 200:
                seen.append(delivery.down)
        stop.set()
        with pytest.raises(Abandoned):
            await task

    with Receiver(failing(0)) as sink, Receiver() as dead:
        await during(test, sink, dead, backoff=0.001)
    assert not any(seen)


async def test_while_no_other_event_is_accepted_502_is_the_sinks_fault() -> None:
    with (
        Receiver(lambda event, times: (502 if times < 9 else 204, b"", {})) as sink,
        Receiver() as dead,
    ):
        await during(one(), sink, dead, retries=2)
    assert (len(sink.accepted), len(dead.requests)) == (1, 0)


async def test_stopping_abandons_waiting_events_at_once() -> None:
    async def test(delivery: Delivery, stop: asyncio.Event) -> None:
        tasks = [asyncio.create_task(deliver(delivery, record(i))) for i in range(5)]
        await until_down(delivery)
        stop.set()
        begin = time.monotonic()
        for task in tasks:
            with pytest.raises(Abandoned):
                await task
        assert time.monotonic() - begin < 20

    await during(test, Receiver(), backoff=100)  # the next attempt would be after 50 s at least


async def test_a_cancelled_probe_passes_its_turn_on() -> None:
    """A rebalance may cancel the event that probes the sink."""
    sink = Receiver()

    async def test(delivery: Delivery, stop: asyncio.Event) -> None:
        tasks = [asyncio.create_task(deliver(delivery, record(i))) for i in range(3)]
        await until_down(delivery)
        await asyncio.sleep(0.2)
        tasks[0].cancel()
        with suppress(asyncio.CancelledError):
            await tasks[0]
        with sink:
            await asyncio.gather(*tasks[1:])

    await during(test, sink)
    assert sorted(event.id[-1] for event in sink.accepted) == ["1", "2"]
