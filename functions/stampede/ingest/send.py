"""Sends alerts from disk to the functions, as the source sends those from Kafka.

The content of the files stands for a topic of one partition, and the place of an alert in it for
its offset. So sending the same content again, under any name, sends the same events, which is
harmless, and the ledger accounts for each event.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.events import functions_of, tables_of
from stampede.events.cloudevents.kafka_record import CloudEventHeaders, Record, extension_headers
from stampede.events.delivery.concurrent_send import send_all
from stampede.events.delivery.delivery import Delivery
from stampede.events.delivery.response import SinkResponse
from stampede.events.delivery.sink import Sink
from stampede.events.kafka.source import connections
from stampede.http.client import Connections
from stampede.ingest import files
from stampede.ingest.identity import Identity, identify
from stampede.ingest.records import FileAlert
from stampede.ingest.tally import Tally
from stampede.store.integrity.ledger import expect
from stampede.store.objects.object_store import Objects

FILE = "ce-file"  # the extension attribute that says where in the files an alert is
FILE_LENGTH = 1000  # characters of it: the last ones, which tell alerts apart
REASON_LENGTH = 700  # characters of a fault, so that its base64 stays under 1,024 bytes


class AlertSink(NamedTuple):
    """URLs for the events of one table, or several: of their function, and of dead letters."""

    tables: tuple[str, ...]
    sink: str
    dead_letters: str  # without the table

    def delivery(
        self, connections: Connections, stop: asyncio.Event, settings: Settings
    ) -> Delivery:
        """Delivers events to these URLs. Raises `NoPlace` for what both refuse."""
        return Delivery(
            Sink("sink", self.sink, connections, stop, settings.backoff_seconds),
            {
                table: Sink(
                    "dead letters",
                    f"{self.dead_letters}/{table}",
                    connections,
                    stop,
                    settings.backoff_seconds,
                )
                for table in self.tables
            },
            settings.retries,
            letter_retries=settings.retries,
        )


class Ingested(NamedTuple):
    """What was sent: the name in place of a topic, what became of it, whether that is all."""

    topic: str
    tally: Tally
    complete: bool


class Progress(NamedTuple):
    """How far an ingest is: bytes of the files digested, alerts sent."""

    bytes_digested: int
    alerts: int


def alert_sinks(urls: Mapping[str, str]) -> list[AlertSink]:
    """The sinks of alerts from disk, given the URL of each function by its name."""
    return [
        AlertSink(tables_of(name), urls[name], urls["deadletters"]) for name in functions_of(urls)
    ]


async def ingest(
    paths: Iterable[Path],
    sinks: Iterable[AlertSink],
    objects: Objects,
    settings: Settings,
    stop: asyncio.Event,
    progress: Callable[[Progress], None],
) -> Ingested:
    """Send every alert at `paths` to every sink; return when each is stored or dead-lettered.

    Parameters
    ----------
    objects
        The store, whose ledger then expects the alerts.
    stop
        Setting it abandons the alerts in flight; see `send_all`.
    progress
        Called after each block of the files, and after each alert.

    Raises
    ------
    SetupError
        There are no alerts at the paths, or a file cannot be read.
    NoPlace
        An alert is refused, and so is the dead letter that it should become.
    """
    alert_files = files.find(paths)
    limit = settings.max_alert_bytes
    identity, digested = await _digest(alert_files, limit, stop, progress)
    topic, tally = identity.topic, Tally()
    if stop.is_set():
        return Ingested(topic, tally, False)
    alerts = enumerate(files.read(alert_files, limit, identity))
    async with connections(settings) as pool:
        deliveries = {each.tables: each.delivery(pool, stop, settings) for each in sinks}
        sender = _Sender(topic, settings.namespace, deliveries, tally)

        async def send(numbered: tuple[int, FileAlert]) -> None:
            await sender.send(*numbered)
            progress(Progress(digested, tally.alerts))

        complete = await send_all(alerts, send, _size, settings, stop)
    if not complete:
        return Ingested(topic, tally, False)
    if not tally.alerts:
        raise SetupError(f"{', '.join(map(str, alert_files[:3]))}: no alerts in there")
    await asyncio.to_thread(expect, objects, topic, tally.alerts)
    return Ingested(topic, tally, True)


async def _digest(
    alert_files: Sequence[Path],
    limit: int,
    stop: asyncio.Event,
    progress: Callable[[Progress], None],
) -> tuple[Identity, int]:
    """Read the files until `stop`; return their identity and how many bytes were read."""
    digested = 0

    def show(done: int) -> bool:
        nonlocal digested
        digested = done
        progress(Progress(digested, 0))
        return not stop.is_set()

    identity = await asyncio.to_thread(identify, alert_files, limit, show)
    return identity, digested


class _Sender:
    """Sends alerts of a topic to every sink, and tallies what became of them."""

    def __init__(
        self,
        topic: str,
        namespace: str,
        deliveries: Mapping[tuple[str, ...], Delivery],
        tally: Tally,
    ) -> None:
        self._topic, self._deliveries, self._tally = topic, deliveries, tally
        self._headers = CloudEventHeaders(namespace, "files", {})

    async def send(self, offset: int, alert: FileAlert) -> None:
        """Deliver an alert to every sink. Raises `NoPlace`."""
        record = Record(self._topic, 0, offset, None, None, (), alert.data)
        headers = self._headers.headers(record) | file_header(alert)
        responses = await asyncio.gather(
            *(_deliver(each, headers, record, alert) for each in self._deliveries.values())
        )
        prefix = f"event {headers['ce-id']} of {headers['ce-source']}: "
        reasons = {
            table: response.reason.removeprefix(prefix)
            for tables, response in zip(self._deliveries, responses, strict=True)
            if response
            for table in response.tables or tables
        }
        self._tally.add(alert.name, reasons, alert.fault is not None)


def _size(numbered: tuple[int, FileAlert]) -> int:
    return len(numbered[1].data)


async def _deliver(
    delivery: Delivery, headers: dict[str, str], record: Record, alert: FileAlert
) -> SinkResponse | None:
    """Deliver an alert, or what should have been one; the reason if it is a dead letter now."""
    if alert.fault is None:
        return await delivery.deliver(headers, record)
    return await delivery.refuse(headers, record, alert.fault[:REASON_LENGTH])


def file_header(alert: FileAlert) -> dict[str, str]:
    """The header that says where in the files an alert is, as printable text."""
    name = "".join(c if c.isprintable() else "\ufffd" for c in alert.name)
    if len(name) > FILE_LENGTH:
        name = "…" + name[1 - FILE_LENGTH :]
    return extension_headers({FILE.removeprefix("ce-"): name})
