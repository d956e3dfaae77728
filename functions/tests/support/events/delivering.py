"""A delivery to receivers that a test plays."""

import asyncio
from collections.abc import Awaitable, Callable

from stampede.config.settings import Settings
from stampede.events.cloudevents.kafka_record import CloudEventHeaders, Record
from stampede.events.delivery.delivery import Delivery
from stampede.events.delivery.sink import Sink
from stampede.events.kafka.source import connections
from tests.support.events.receiver import Receiver

EVENT_HEADERS = CloudEventHeaders("default", "test", {})


def record(offset: int = 0, value: bytes = b"alert") -> Record:
    return Record("alerts", 0, offset, 0, None, (), value)


Given = Callable[[Delivery, asyncio.Event], Awaitable[None]]


async def during(
    test: Given,
    sink: Receiver,
    dead_letters: Receiver | None = None,
    retries: int = 3,
    backoff: float = 0.01,
    give_up: float = 300,
) -> None:
    """Run `test` with a delivery to these receivers."""
    stop = asyncio.Event()
    async with asyncio.timeout(120), connections(Settings()) as http:

        def to(name: str, receiver: Receiver) -> Sink:
            longest = 500 * backoff
            return Sink(name, receiver.url, http, stop, backoff, longest, give_up)

        other = {"": to("dead letters", dead_letters)} if dead_letters else {}
        await test(Delivery(to("sink", sink), other, retries), stop)


async def until_down(delivery: Delivery) -> None:
    while not delivery.down:
        await asyncio.sleep(0.01)


async def deliver(delivery: Delivery, *records: Record) -> None:
    await asyncio.gather(*(delivery.deliver(EVENT_HEADERS.headers(each), each) for each in records))


def one(*records: Record) -> Given:
    async def test(delivery: Delivery, stop: asyncio.Event) -> None:
        await deliver(delivery, *(records or (record(),)))

    return test
