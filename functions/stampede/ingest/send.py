"""Sends alerts from disk to the functions, as the source sends those from Kafka.

The content of the files stands for a topic of one partition, and the place of an alert in it for
its offset. So sending the same content again, under any name, sends the same events, which is
harmless, and the ledger accounts for each event.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from stampede.errors import SetupError
from stampede.events.connections import Connections
from stampede.events.delivery import Delivery, Sink
from stampede.events.record import CloudEventHeaders, Record
from stampede.events.sending import send_all
from stampede.events.source import connections
from stampede.functions import ALERT_FUNCTIONS
from stampede.ingest import files
from stampede.ingest.identity import identify
from stampede.settings import Settings
from stampede.store.ledger import expect
from stampede.store.objects import Objects


class AlertSink(NamedTuple):
    """URLs for the events of one table: of its function, and of its dead letters."""

    sink: str
    dead_letters: str

    def delivery(
        self, connections: Connections, stop: asyncio.Event, settings: Settings
    ) -> Delivery:
        """Delivers events to these URLs."""
        return Delivery(
            Sink("sink", self.sink, connections, stop, settings.backoff_seconds),
            Sink("dead letters", self.dead_letters, connections, stop, settings.backoff_seconds),
            settings.retries,
        )


class Ingested(NamedTuple):
    """What was sent: the name in place of a topic, the number of alerts, whether that is all."""

    topic: str
    alerts: int
    complete: bool


def alert_sinks(urls: dict[str, str]) -> list[AlertSink]:
    """The sinks of alerts from disk, given the URL of each function by its name."""
    return [
        AlertSink(urls[name], f"{urls['deadletters']}/{table}")
        for name, table in ALERT_FUNCTIONS.items()
    ]


async def ingest(
    paths: Iterable[Path],
    sinks: Iterable[AlertSink],
    objects: Objects,
    settings: Settings,
    stop: asyncio.Event,
    progress: Callable[[int], None],
) -> Ingested:
    """Send every alert at `paths` to every sink; return when each is stored or dead-lettered.

    Parameters
    ----------
    objects
        The store, whose ledger then expects the alerts.
    stop
        Setting it abandons the alerts in flight; see `send_all`.
    progress
        Called with the number of alerts sent, after each.

    Raises
    ------
    SetupError
        There are no alerts at the paths, or a file cannot be read.
    """
    alert_files = files.find(paths)
    topic, _ = await asyncio.to_thread(identify, alert_files, lambda _: not stop.is_set())
    if stop.is_set():
        return Ingested(topic, 0, False)
    records = (
        Record(topic, 0, offset, None, None, (), alert.data)
        for offset, alert in enumerate(files.read(alert_files))
    )
    event_headers = CloudEventHeaders(settings.namespace, "files", {})
    sent = 0
    async with connections(settings) as pool:
        deliveries = [sink.delivery(pool, stop, settings) for sink in sinks]

        async def send(record: Record) -> None:
            nonlocal sent
            headers = event_headers.headers(record)
            await asyncio.gather(*(each.deliver(headers, record) for each in deliveries))
            sent += 1
            progress(sent)

        complete = await send_all(records, send, lambda record: len(record.value), settings, stop)
    if not complete:
        return Ingested(topic, sent, False)
    if not sent:
        raise SetupError(f"{', '.join(map(str, alert_files[:3]))}: no alerts in there")
    await asyncio.to_thread(expect, objects, topic, sent)
    return Ingested(topic, sent, True)
