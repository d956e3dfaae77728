"""The source: sends every record of the topics as a CloudEvent to a sink, as a KafkaSource does.

Used where there is no KafkaSource: on one machine without a cluster, or as the chart's own source.
Unlike a KafkaSource it commits an offset only after its event was accepted.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import partial

import uvloop

from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.errors import SetupError
from stampede.events.auth.access import access_keys
from stampede.events.auth.sender_credentials import SenderProof
from stampede.events.cloudevents.kafka_record import CloudEventHeaders, Record
from stampede.events.delivery.delivery import Delivery
from stampede.events.delivery.response import RESPONSE_SECONDS, Poster
from stampede.events.delivery.sink import Sink
from stampede.events.http.status_server import status_server
from stampede.events.kafka.consumer import Consumer
from stampede.events.kafka.source_health import SourceHealth
from stampede.http.client import Connections
from stampede.runtime.signals import run_until_stopped
from stampede.telemetry import tracing
from stampede.telemetry.logs import get_logger

log = get_logger()

# uvicorn, at the other end, closes a connection that was idle for 5 s. Stop using it earlier:
# otherwise an event may be sent into a connection that is closing.
IDLE_SECONDS = 4.0
CONNECT_SECONDS = 5.0


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Send events to the sink of the settings until `stop` is set.

    Raises what `send_alerts` raises.
    """
    check(settings)
    access_keys(settings)  # raises if the key cannot be sent
    health = SourceHealth()
    async with status_server(settings, not_alive=health.not_alive, not_ready=health.not_ready):
        await send_alerts(settings, settings.sink, health, stop)


async def send_alerts(
    settings: Settings,
    url: str,
    health: SourceHealth,
    stop: asyncio.Event,
    poster: Poster | None = None,
    tables: Sequence[str] = ("",),
) -> None:
    """Send Kafka's alerts until `stop` is set; then wait for those in flight, and commit.

    Parameters
    ----------
    url
        The sink of the events.
    health
        Told what the Kafka client does.
    poster
        Sends events to the sink; None: they go by HTTP, as dead letters always do.
    tables
        What the sink fills. If it fills several, dead letters go to the URL of the settings and
        ``/TABLE``.

    Raises
    ------
    SetupError
        A setting is missing or wrong, or Kafka refuses.
    """
    event_headers = CloudEventHeaders(
        settings.namespace, settings.source_name, overrides(settings.ce_overrides)
    )
    async with connections(settings) as http:
        sink = Sink(
            "sink",
            url,
            poster or http,
            stop,
            settings.backoff_seconds,
            give_up_seconds=settings.give_up_seconds,
        )
        dead_letters = {}
        if letters := settings.dead_letter_sink:
            for table in tables:
                to = letters if len(tables) == 1 else f"{letters.rstrip('/')}/{table}"
                dead_letters[table] = Sink("dead letters", to, http, stop, settings.backoff_seconds)
        delivery = Delivery(sink, dead_letters, settings.retries)
        deliver = partial(deliver_record, event_headers, delivery)
        await Consumer(settings, deliver, lambda: delivery.down, health).run(stop)


async def deliver_record(
    event_headers: CloudEventHeaders, delivery: Delivery, record: Record
) -> None:
    """Deliver a record as an event, as a step of its trace if that is recorded."""
    try:
        headers = event_headers.headers(record)
    except Exception as error:  # of what may be left out; the alert itself is in the body
        log.warning("sent without key, time and headers", record=str(record), error=error)
        lost = "its key and headers"
        bare = record._replace(milliseconds=None, key=None, headers=(), lost=lost)
        headers = event_headers.headers(bare)
    before = tracing.of_record(record.headers) if tracing.recording() else None
    with tracing.step("deliver alert", before, may_begin=True) as step:
        if step:
            tracing.note(
                {
                    "messaging.system": "kafka",
                    "messaging.destination.name": record.topic,
                    "messaging.destination.partition.id": str(record.partition),
                    "messaging.kafka.offset": record.offset,
                    "messaging.message.body.size": len(record.value),
                }
            )
            headers |= step.headers
        refusal = await delivery.deliver(headers, record)
        if step and refusal:
            step.fail(refusal.outcome)


def main(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT."""
    tracing.start("stampede-source", settings.traces, settings.trace_share)
    run_until_stopped(partial(run, settings), uvloop.new_event_loop)


def check(settings: Settings) -> None:
    """Raise `SetupError` if a setting of a source is missing or cannot work."""
    check_input(settings)
    if not settings.sink:
        raise SetupError("no sink: set K_SINK to the URL that events are sent to")
    _check_url("K_SINK", settings.sink)


def check_input(settings: Settings) -> None:
    """Raise `SetupError` if a setting of what reads Kafka is missing or cannot work."""
    if not Topics.parse(settings.topics):
        raise SetupError("no topics: set STAMPEDE_TOPICS to the Kafka topics to read")
    if settings.dead_letter_sink:
        _check_url("STAMPEDE_DEAD_LETTER_SINK", settings.dead_letter_sink)


def _check_url(name: str, url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise SetupError(f"{name} is not an http(s) URL: {url}")


def overrides(text: str) -> Mapping[str, str]:
    """The extensions in the JSON of Knative's K_CE_OVERRIDES.

    Raises
    ------
    SetupError
        The JSON is not of the form that a SinkBinding sets.
    """
    try:
        extensions = json.loads(text or "{}").get("extensions") or {}
        return {str(name).lower(): str(value) for name, value in extensions.items()}
    except (ValueError, AttributeError):
        raise SetupError(
            'K_CE_OVERRIDES is not of the form {"extensions": {NAME: VALUE}}'  # it may hold a key
        ) from None


def connections(settings: Settings) -> Connections:
    """Kept-alive connections, at most one per event in flight; each request carries the
    sender's proof."""
    return Connections(
        settings.in_flight,
        IDLE_SECONDS,
        CONNECT_SECONDS,
        RESPONSE_SECONDS,
        SenderProof(settings).headers,
    )
