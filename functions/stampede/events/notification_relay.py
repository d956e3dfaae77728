"""The relay: takes what an S3 endpoint tells of stored objects, and sends it to the Broker.

An S3 endpoint is an impatient sender. Ceph's RGW repeats a notification that was answered with
an error at once, up to a thousand at a time, and may give up a topic for good, until it is
started anew, when nobody accepts its connections. So the relay does nothing that could fail: it
always answers, with 2xx once the Broker has the events; while the Broker is down it holds on, one
event probing and the others waiting, and says 503 only after a while. The queue is RGW's.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from stampede.errors import BrokerDown, SetupError
from stampede.events.broker import connections
from stampede.events.delivery import Sink
from stampede.events.event import Event
from stampede.events.event_endpoint import EventEndpoint
from stampede.events.oidc import identified
from stampede.events.s3_events import headers_of
from stampede.events.s3_notifications import read, stored_events
from stampede.settings import Settings

PROBES = 5  # of a Broker that is down, at least, before a notification is given back
RETRIES = 2  # of an event that the Broker fails to take; the Broker itself tries more


class Relay:
    """Sends events to the Broker, within its `lifespan`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sink: Sink

    @asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
        """Hold connections to the Broker."""
        settings, stop = self._settings, asyncio.Event()
        async with connections(at_once=0) as held:
            self._sink = Sink(
                *("broker", settings.sink, held, stop, settings.backoff_seconds),
                longest_probe=settings.hold_seconds / PROBES,
            )
            yield

    async def take(self, notification: Event) -> BrokerDown | None:
        """Send on what a notification says; None when the Broker has all of it."""
        events = stored_events(notification.data, self._settings.region)
        verdicts = await asyncio.gather(*map(self._send, events))
        return next((verdict for verdict in verdicts if verdict), None)

    async def _send(self, event: Event) -> BrokerDown | None:
        begin, hold = time.monotonic(), self._settings.hold_seconds
        headers = identified(headers_of(event), self._settings.sink_token)
        sending = asyncio.ensure_future(self._sink.send(headers, event.data, RETRIES))
        while not (await asyncio.wait({sending}, timeout=hold))[0]:
            if self._sink.down:  # rather than slow
                sending.cancel()
                return BrokerDown(f"{event.attributes['subject']}: the Broker is down")
        if (answer := sending.result()) is None:
            return None
        await asyncio.sleep(begin + hold - time.monotonic())  # RGW comes again at once
        detail = answer.detail.decode(errors="replace")
        return BrokerDown(
            f"{event.attributes['subject']}: the Broker answered {answer.outcome}: {detail}"
        )


def notifications_app(name: str, settings: Settings) -> EventEndpoint:
    """`notifications`: needs the Broker's URL in K_SINK. Raises `SetupError`."""
    if not settings.sink.startswith(("http://", "https://")):
        raise SetupError(f"no Broker: set K_SINK to its URL, not to {settings.sink!r}")
    relay = Relay(settings)
    return EventEndpoint(name, relay.take, settings.max_alert_bytes, relay.lifespan, read=read)
