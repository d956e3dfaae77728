"""The source: sends every record of the topics as a CloudEvent to a sink, as a KafkaSource does.

For where there is no KafkaSource: one machine without a cluster, or a ContainerSource. Unlike a
KafkaSource it never commits an offset whose event is nowhere.
"""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.routing import Route

from stampede import metrics
from stampede.errors import SetupError
from stampede.events.connections import Connections
from stampede.events.consumer import Consumer
from stampede.events.delivery import ANSWER_SECONDS, Delivery, Sink
from stampede.events.event_endpoint import healthy
from stampede.events.record import CloudEventHeaders, Record
from stampede.settings import Settings

# uvicorn, at the other end, closes a connection that was idle for 5 s: be sooner, or an event
# meets a closing door.
IDLE_SECONDS = 4.0
CONNECT_SECONDS = 5.0


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Send events until `stop` is set; then wait for those under way, and commit.

    Raises
    ------
    SetupError
        A setting is missing or wrong, or Kafka will not have it.
    """
    check(settings)
    naming = CloudEventHeaders(
        settings.namespace, settings.source_name, overrides(settings.ce_overrides)
    )
    async with connections(settings) as held:
        sink = Sink("sink", settings.sink, held, stop, settings.backoff_seconds)
        dead_letters = None
        if url := settings.dead_letter_sink:
            dead_letters = Sink("dead letters", url, held, stop, settings.backoff_seconds)
        delivery = Delivery(sink, dead_letters, settings.retries)

        async def deliver(record: Record) -> None:
            await delivery.deliver(naming.headers(record), record)

        async with status_routes(settings):
            await Consumer(settings, deliver, lambda: delivery.down).run(stop)


def main(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT."""

    async def until_told() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await run(settings, stop)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(until_told())


def check(settings: Settings) -> None:
    """Raise `SetupError` where a setting is missing or cannot work."""
    if not settings.topics.strip():
        raise SetupError("no topics: set STAMPEDE_TOPICS to the Kafka topics to read")
    for name, url in (
        ("K_SINK", settings.sink),
        ("STAMPEDE_DEAD_LETTER_SINK", settings.dead_letter_sink),
    ):
        if name == "K_SINK" and not url:
            raise SetupError("no sink: set K_SINK to the URL that events are sent to")
        if url and not url.startswith(("http://", "https://")):
            raise SetupError(f"{name} is no http(s) URL: {url}")


def overrides(text: str) -> Mapping[str, str]:
    """The extensions that Knative's K_CE_OVERRIDES asks for.

    Raises
    ------
    SetupError
        It is not what a SinkBinding sets.
    """
    try:
        extensions = json.loads(text or "{}").get("extensions") or {}
        return {str(name).lower(): str(value) for name, value in extensions.items()}
    except (ValueError, AttributeError):
        raise SetupError(
            f'K_CE_OVERRIDES is not of the form {{"extensions": {{…}}}}: {text[:200]}'
        ) from None


def connections(settings: Settings) -> Connections:
    """Kept-alive connections, one per event in flight at most."""
    return Connections(settings.in_flight, IDLE_SECONDS, CONNECT_SECONDS, ANSWER_SECONDS)


@asynccontextmanager
async def status_routes(settings: Settings) -> AsyncIterator[None]:
    """Serve `/metrics` and `/health/…` on the source's port. Raises `SetupError`."""
    try:
        listening = socket.create_server((settings.host, settings.port))
    except OSError as error:
        raise SetupError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}"
        ) from None
    app = Starlette(
        routes=[
            Route("/metrics", metrics.endpoint),
            Route("/health/liveness", healthy),
            Route("/health/readiness", healthy),
        ]
    )
    server = StatusServer(
        uvicorn.Config(app, access_log=False, log_config=None, lifespan="off", loop="none")
    )
    serving = asyncio.create_task(server.serve([listening]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving
        listening.close()


class StatusServer(uvicorn.Server):
    """A server beside the source, which handles the signals itself."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield
