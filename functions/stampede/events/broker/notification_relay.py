"""The relay: sends the bucket notifications of an S3 endpoint to the Broker, as CloudEvents.

An S3 endpoint is an impatient sender. Ceph's RGW repeats a notification at once after an error,
up to a thousand at a time. If its connections are refused it may give up the topic until it is
restarted. So the relay starts without its Broker and always answers: with 2xx once the Broker has
the events, or has refused one for good. While the Broker is down one event at a time probes it and
the others wait; the relay answers 503 only after `hold_seconds`. RGW keeps the queue.
"""

import asyncio
import time

from stampede.addresses import shown
from stampede.config.settings import Settings
from stampede.errors import BrokerDown, SetupError
from stampede.events.auth.access import key_attribute
from stampede.events.auth.broker_token import with_token
from stampede.events.broker.broker import connections
from stampede.events.broker.s3_notifications import parse_notification, stored_events
from stampede.events.cloudevents.event import Event
from stampede.events.cloudevents.s3_events import headers_of
from stampede.events.delivery.response import Verdict
from stampede.events.delivery.sink import Sink
from stampede.events.http.endpoint import EventEndpoint, HttpBinding
from stampede.telemetry import event_metrics, tracing
from stampede.telemetry.logs import get_logger

log = get_logger()

PROBES = 5  # least probes of a Broker that is down, before the relay answers 503
RETRIES = 2  # of an event that the Broker fails to accept; the Broker retries more often itself


class Relay:
    """Sends events to the sink, the Broker."""

    def __init__(self, settings: Settings, sink: Sink) -> None:
        self._settings = settings
        self._sink = sink

    async def handle(self, notification: Event) -> BrokerDown | None:
        """Send the events of a notification; returns None once the Broker has all of them."""
        events = stored_events(notification.data, self._settings.region)
        errors = await asyncio.gather(*map(self._send, events))
        return next((error for error in errors if error), None)

    async def _send(self, event: Event) -> BrokerDown | None:
        with tracing.step("announce object", event.traceparent) as step:
            if step:
                tracing.note({"aws.s3.key": event.attributes["subject"]})
            return await self._deliver(event, step.headers if step else {})

    async def _deliver(self, event: Event, trace: dict[str, str]) -> BrokerDown | None:
        begin, hold = time.monotonic(), self._settings.hold_seconds
        # An attribute, since the Broker sends it on to the functions; the token is the Broker's.
        headers = headers_of(event) | key_attribute(self._settings)
        headers = with_token(headers | trace, self._settings.sink_token)
        sending = asyncio.ensure_future(self._sink.send(headers, event.data, RETRIES))
        while not (await asyncio.wait({sending}, timeout=hold))[0]:
            if self._sink.down:  # otherwise the Broker is only slow
                sending.cancel()
                return BrokerDown(f"{event.attributes['subject']}: the Broker is down")
        if (response := sending.result()) is None:
            return None
        if response.verdict is Verdict.REFUSED:  # for good: the notifications behind it must go on
            event_metrics.NOTIFICATIONS_DROPPED.inc()
            log.warning(
                "notification dropped",
                id=event.attributes["id"],
                subject=event.attributes["subject"],
                outcome=response.outcome,
                reason=response.detail[:200].decode(errors="replace"),
            )
            return None
        await asyncio.sleep(begin + hold - time.monotonic())  # RGW repeats a notification at once
        detail = response.detail.decode(errors="replace")
        return BrokerDown(
            f"{event.attributes['subject']}: the Broker answered {response.outcome}: {detail}"
        )


def notifications_app(name: str, settings: Settings) -> EventEndpoint:
    """`notifications`: needs the Broker's URL in K_SINK. Raises `SetupError`."""
    if not settings.sink.startswith(("http://", "https://")):
        raise SetupError(f"no Broker: set K_SINK to its URL, not to {shown(settings.sink)!r}")
    http = connections(concurrency=0)
    sink = Sink(
        "broker",
        settings.sink,
        http,
        asyncio.Event(),  # never set: the relay answers all it has taken
        settings.backoff_seconds,
        longest_probe_pause=settings.hold_seconds / PROBES,
    )
    relay = Relay(settings, sink)
    binding = HttpBinding(parse_notification, key_in_path=True)
    return EventEndpoint.of(name, relay.handle, settings, [http], binding=binding)
