"""`stampede ingest`: alerts from disk into the functions, as if a source had them from Kafka.

The files stand in for a topic of one partition, an alert's place among them for its offset. So
the same files again are the same events, which is harmless, and the ledger accounts for each.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from stampede.errors import SetupError
from stampede.events.delivery import Abandoned, Delivery, Sink
from stampede.events.record import CloudEventHeaders, Record
from stampede.events.source import connections
from stampede.functions import ALERT_FUNCTIONS
from stampede.ingest import files
from stampede.settings import Settings
from stampede.store.ledger import expect
from stampede.store.objects import Objects

Tell = Callable[[int], None]


class Way(NamedTuple):
    """Where the events of one table go: its function, and its dead letters."""

    sink: str
    dead_letters: str


class Ingested(NamedTuple):
    """What was sent: the name that stands for a topic, how many alerts, whether all of them."""

    topic: str
    alerts: int
    complete: bool


def ways_of(urls: dict[str, str]) -> list[Way]:
    """Where alerts that come from no Kafka are sent, given the URL of each function."""
    return [
        Way(urls[name], f"{urls['deadletters']}/{table}") for name, table in ALERT_FUNCTIONS.items()
    ]


async def ingest(
    paths: Iterable[Path],
    ways: Iterable[Way],
    objects: Objects,
    settings: Settings,
    stop: asyncio.Event,
    tell: Tell,
) -> Ingested:
    """Send every alert at `paths` along every way; returns when each is durable somewhere.

    Raises
    ------
    SetupError
        There are no alerts at the paths, or an archive cannot be read to its end.
    """
    found = files.find(paths)
    topic = files.name_of(found)
    naming = CloudEventHeaders(settings.namespace, "files", {})
    async with connections(settings) as held:
        deliveries = [
            Delivery(
                Sink("sink", way.sink, held, stop, settings.backoff_seconds),
                Sink("dead letters", way.dead_letters, held, stop, settings.backoff_seconds),
                settings.retries,
            )
            for way in ways
        ]
        room = asyncio.Semaphore(max(1, settings.in_flight // 4))
        sent = 0

        async def send(record: Record) -> None:
            nonlocal sent
            try:
                headers = naming.headers(record)
                await asyncio.gather(*(each.deliver(headers, record) for each in deliveries))
                sent += 1
                tell(sent)
            finally:
                room.release()

        alerts = enumerate(files.read(found))
        count = 0
        try:
            async with asyncio.TaskGroup() as tasks:
                # A few at a time, in a thread: reading must not hold up what is under way.
                while batch := await asyncio.to_thread(lambda: list(islice(alerts, 50))):
                    for offset, alert in batch:
                        await room.acquire()
                        if stop.is_set():
                            raise Abandoned
                        record = Record(topic, 0, offset, None, None, (), alert.data)
                        tasks.create_task(send(record))
                        count += 1
        except* Abandoned:
            count = -1
        except* SetupError as group:  # out of the group, for whoever expects one error
            raise group.exceptions[0] from None
    if count < 0:
        return Ingested(topic, sent, False)
    if not count:
        raise SetupError(f"{', '.join(str(each) for each in found[:3])}: no alerts in there")
    await asyncio.to_thread(expect, objects, topic, count)
    return Ingested(topic, count, True)
