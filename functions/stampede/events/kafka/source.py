"""The source: sends every record of the topics as a CloudEvent to its sinks, as a KafkaSource does.

Used where there is no KafkaSource: on one machine without a cluster, or as the chart's own source.
Unlike a KafkaSource it commits an offset only after its event was accepted, and it may have a sink
for each table: a record is fetched once for all of them.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import partial

import uvloop

from stampede.addresses import shown
from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.errors import SetupError
from stampede.events import ALERT_FUNCTIONS
from stampede.events.auth.access import access_keys
from stampede.events.auth.sender_credentials import SenderProof
from stampede.events.cloudevents.kafka_record import CloudEventHeaders
from stampede.events.delivery.delivery import Delivery
from stampede.events.delivery.outlet import Outlet, headers_of
from stampede.events.delivery.response import RESPONSE_SECONDS, Poster
from stampede.events.delivery.sink import Sink
from stampede.events.http.status_server import status_server
from stampede.events.kafka.consumer import Consumer
from stampede.events.kafka.source_health import SourceHealth
from stampede.http.client import Connections
from stampede.runtime.signals import run_until_stopped
from stampede.telemetry import tracing

# uvicorn, at the other end, closes a connection that was idle for 5 s. Stop using it earlier:
# otherwise an event may be sent into a connection that is closing.
IDLE_SECONDS = 4.0
CONNECT_SECONDS = 5.0


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Send events to the sinks of the settings until `stop` is set.

    Raises what `send_alerts` raises.
    """
    check(settings)
    access_keys(settings)  # raises if the key cannot be sent
    health = SourceHealth()
    async with (
        status_server(settings, not_alive=health.not_alive, not_ready=health.not_ready),
        connections(settings) as http,
    ):
        await send_alerts(settings, sinks_of(settings, http, stop), health, stop)


async def send_alerts(
    settings: Settings, outlets: Sequence[Outlet], health: SourceHealth, stop: asyncio.Event
) -> None:
    """Deliver Kafka's alerts until `stop` is set; then wait for those in flight, and commit.

    Parameters
    ----------
    outlets
        Each gets every alert.
    health
        Told what the Kafka client does.

    Raises
    ------
    SetupError
        A setting is missing or wrong, or Kafka refuses.
    """
    made = CloudEventHeaders(
        settings.namespace, settings.source_name, overrides(settings.ce_overrides)
    )
    await Consumer(settings, outlets, partial(headers_of, made), health).run(stop)


def sinks_of(settings: Settings, http: Poster, stop: asyncio.Event) -> list[Outlet]:
    """An outlet for each sink of the settings; dead letters of several go to ``/TABLE``."""
    tables = list(ALERT_FUNCTIONS.values())
    if not settings.sinks:
        letters = letters_of(settings, [""])
        return [sink_outlet(settings, tables, settings.sink, letters, http, stop)]
    by_table = letters_of(settings, tables)
    return [
        sink_outlet(
            settings,
            [table],
            url,
            {table: by_table[table]} if by_table else {},
            http,
            stop,
        )
        for table, url in settings.sinks.items()
    ]


def letters_of(settings: Settings, tables: Sequence[str]) -> dict[str, str]:
    """The URL for dead letters of each table: with ``/TABLE`` if they are several."""
    letters = settings.dead_letter_sink
    if not letters:
        return {}
    if len(tables) == 1:
        return {tables[0]: letters}
    return {table: f"{letters.rstrip('/')}/{table}" for table in tables}


def sink_outlet(
    settings: Settings,
    tables: Sequence[str],
    url: str,
    letters: Mapping[str, str],
    http: Poster,
    stop: asyncio.Event,
    poster: Poster | None = None,
) -> Outlet:
    """An outlet that sends events to a URL.

    Parameters
    ----------
    tables
        The tables that are filled by what is behind it.
    letters
        URLs for dead letters, by table; without one a refused event is tried for ever.
    http
        Sends requests.
    stop
        Once set, an event that would have to wait is abandoned.
    poster
        Sends the events in place of `http`, which then sends the dead letters only.
    """
    pause = settings.backoff_seconds
    sink = Sink("sink", url, poster or http, stop, pause, give_up_seconds=settings.give_up_seconds)
    dead_letters = {
        table: Sink("dead letters", to, http, stop, pause) for table, to in letters.items()
    }
    delivery = Delivery(sink, dead_letters, settings.retries)
    return Outlet(" and ".join(tables), tables, delivery)


def main(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT."""
    tracing.start("stampede-source", settings.traces, settings.trace_share)
    run_until_stopped(partial(run, settings), uvloop.new_event_loop)


def check(settings: Settings) -> None:
    """Raise `SetupError` if a setting of a source is missing or cannot work."""
    check_input(settings)
    if not (settings.sink or settings.sinks):
        raise SetupError("no sink: set K_SINK to the URL that events are sent to")
    if settings.sinks and (unknown := settings.sinks.keys() - set(ALERT_FUNCTIONS.values())):
        raise SetupError(f"STAMPEDE_SINKS names no table of alerts: {', '.join(sorted(unknown))}")
    for url in settings.sinks.values():
        _check_url("STAMPEDE_SINKS", url)
    if not settings.sinks:
        _check_url("K_SINK", settings.sink)


def check_input(settings: Settings) -> None:
    """Raise `SetupError` if a setting of what reads Kafka is missing or cannot work."""
    if not Topics.parse(settings.topics):
        raise SetupError("no topics: set STAMPEDE_TOPICS to the Kafka topics to read")
    if settings.dead_letter_sink:
        _check_url("STAMPEDE_DEAD_LETTER_SINK", settings.dead_letter_sink)


def _check_url(name: str, url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise SetupError(f"{name} is not an http(s) URL: {shown(url)}")


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
    """Kept-alive connections, at most one per event in flight and sink; each request carries the
    sender's proof."""
    return Connections(
        settings.in_flight * max(1, len(settings.sinks)),
        IDLE_SECONDS,
        CONNECT_SECONDS,
        RESPONSE_SECONDS,
        SenderProof(settings).headers,
    )
