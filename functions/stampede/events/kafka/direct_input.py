"""Kafka as the input of a function: it takes its alerts from there itself, each once.

They become the same events as a source's, and the function checks, bounds and counts them in the
same way. But they cross no connection: docs/adr/0051-one-process.md has what that saves.
"""

import asyncio
from collections.abc import Callable, Mapping

from stampede.config.settings import Settings
from stampede.events import tables_of
from stampede.events.http.endpoint import EventEndpoint, Reply
from stampede.events.kafka.source import (
    check_input,
    connections,
    letters_of,
    send_alerts,
    sink_outlet,
)
from stampede.events.kafka.source_health import SourceHealth
from stampede.http.response_reader import DETAIL_BYTES, Response

# Unless the settings say so. More than a source has, since they need no connections: two batches
# of ZTF's alerts, so that one fills while the other is stored (docs/adr/0051-one-process.md).
IN_FLIGHT = 1200


def settings_for_kafka(settings: Settings) -> Settings:
    """The settings of a function that reads Kafka itself.

    A batch has at most half of what may be in flight. The other half are read and checked while
    it is stored, so the next batch is complete when that ends.
    """
    told = settings.model_fields_set
    alerts = settings.in_flight if "in_flight" in told else IN_FLIGHT
    size = settings.in_flight_bytes if "in_flight_bytes" in told else 2 * settings.batch_bytes
    return settings.model_copy(
        update={
            "in_flight": alerts,
            "in_flight_bytes": size,
            "batch_alerts": max(1, min(settings.batch_alerts, alerts // 2)),
            "batch_bytes": max(1, min(settings.batch_bytes, size // 2)),
        }
    )


class KafkaInput:
    """Passes the alerts of the settings' topics to a function, whose health becomes a source's.

    Parameters
    ----------
    name
        The function's.
    function
        Takes the events, on its event loop.
    settings
        Those of the function and of a source, without a sink, as of `settings_for_kafka`.

    Raises
    ------
    SetupError
        A setting is missing or cannot work.
    """

    def __init__(self, name: str, function: EventEndpoint, settings: Settings) -> None:
        check_input(settings)
        self._name = name
        self._function = function
        self._settings = settings
        self._health = SourceHealth()
        function.not_alive = self._health.not_alive
        function.not_ready = self._health.not_ready
        self._stop = asyncio.Event()
        self._sending: asyncio.Task[None]  # made by `start`
        self._taking: set[asyncio.Task[Reply]] = set()

    def start(self, ended: Callable[[], None]) -> None:
        """Begin to take alerts; `ended` is called when that ends, for whatever reason."""
        self._sending = asyncio.create_task(self._send())
        self._sending.add_done_callback(lambda _: ended())

    async def _send(self) -> None:
        settings, tables = self._settings, tables_of(self._name)
        url = f"function:{self._name}"  # where a dead letter says that it was refused
        letters = letters_of(settings, tables)
        async with connections(settings) as http:
            outlet = sink_outlet(settings, tables, url, letters, http, self._stop, self)
            await send_alerts(settings, [outlet], self._health, self._stop)

    async def stop(self) -> BaseException | None:
        """Wait for the alerts in flight, commit, and leave Kafka; return why it had failed."""
        self._stop.set()
        await asyncio.wait([self._sending])
        return self._sending.exception()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        """The function's response to an event, as if it had come by HTTP.

        It has no time limit: the function bounds how long an event takes (`flush_seconds`).
        """
        fields = [(name.encode(), text.encode()) for name, text in headers.items()]
        # A task of its own, because a delivery is cancelled when another takes the partition over.
        # The function still has the event then, and must count its bytes until it is stored.
        taking = asyncio.create_task(self._function.take(fields, body))
        self._taking.add(taking)
        taking.add_done_callback(self._taking.discard)
        reply = await asyncio.shield(taking)
        return Response(reply.status, reply.retry_after, reply.body[:DETAIL_BYTES])
