"""A function as a server, which runs until a signal stops it, and lets it drain."""

import signal
import socket
import sys
from contextlib import AsyncExitStack
from ipaddress import ip_address
from typing import TYPE_CHECKING, cast

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from stampede.config.settings import Settings
from stampede.events import ALERT_FUNCTIONS, BOTH_TABLES
from stampede.events.http.bounded_protocol import bounded_protocol
from stampede.events.http.large_bodies import body_protocol
from stampede.events.http.status_server import status_server
from stampede.handlers.apps import make_app
from stampede.telemetry import tracing
from stampede.telemetry.logs import get_logger

if TYPE_CHECKING:
    from stampede.events.kafka.direct_input import KafkaInput

log = get_logger()

DRAIN_SECONDS = 60


def make_server(name: str, settings: Settings) -> "Server":
    """The server of a function. From now on SIGTERM and Ctrl-C end the process with success."""
    # After the drain uvicorn raises the signal that stopped it again; here that is success.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    closed = settings.event_key.get_secret_value() or settings.sender_issuer
    if name != "read" and not closed and not is_loopback(settings):
        log.warning("anyone may send events: set STAMPEDE_EVENT_KEY", function=name)
    tracing.start(f"stampede-{name}", settings.traces, settings.trace_share)
    if settings.from_kafka and name in (BOTH_TABLES, *ALERT_FUNCTIONS):
        app, kafka = app_reading_kafka(name, settings)
    else:
        app, kafka = make_app(name, settings), None
    # `read` counts the bytes of a query as they come.
    protocol = bounded_protocol if name == "read" else body_protocol
    config = uvicorn.Config(
        without_metrics(app) if settings.metrics_port else app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=protocol(settings.client_seconds),
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,  # `trusted_proxies` says whose X-Forwarded-For is believed
        timeout_keep_alive=75,  # longer than a source keeps an idle connection
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    return Server(config, settings, kafka)


def app_reading_kafka(name: str, settings: Settings) -> "tuple[ASGIApp, KafkaInput]":
    """The app, and what gives it Kafka's alerts. Raises `SetupError` if a setting is wrong."""
    from stampede.events.http.endpoint import EventEndpoint
    from stampede.events.kafka.direct_input import KafkaInput, settings_for_kafka

    settings = settings_for_kafka(settings)
    app = make_app(name, settings)
    return app, KafkaInput(name, cast(EventEndpoint, app), settings)


def is_loopback(settings: Settings) -> bool:
    """Whether only this machine reaches the address that a server listens on."""
    try:
        return settings.host == "localhost" or ip_address(settings.host).is_loopback
    except ValueError:
        return False


class Server(uvicorn.Server):
    """The server of a function, and of its metrics if they have a port of their own.

    Parameters
    ----------
    kafka
        Takes alerts from Kafka too; None if the function does not.
    """

    def __init__(
        self, config: uvicorn.Config, settings: Settings, kafka: "KafkaInput | None" = None
    ) -> None:
        super().__init__(config)
        self._settings = settings
        self._kafka = kafka
        self._failure: BaseException | None = None

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until SIGTERM or Ctrl-C.

        Then refuse new requests, store and response the waiting events, and return.
        """
        if self._settings.socket is not None:
            # The process that opened the socket keeps listening while this one restarts.
            sockets = [socket.socket(fileno=self._settings.socket)]
        try:
            super().run(sockets)
        finally:  # a signal ends the process within
            if self._failure:
                raise self._failure
        if not self.started:
            sys.exit(3)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal. Metrics are served until the last request is answered."""
        async with AsyncExitStack() as stack:
            if port := self._settings.metrics_port:
                await stack.enter_async_context(status_server(self._settings, port))
            await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; then take alerts from Kafka. The server ends when that ends."""
        await super().startup(sockets)
        if self._kafka:
            self._kafka.start(self._end)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more of Kafka, store what is in flight, and commit; then stop to listen."""
        if self._kafka:
            self._failure = await self._kafka.stop()
            if self._failure:
                log.error("takes no more alerts from Kafka", error=self._failure)
        await super().shutdown(sockets)

    def _end(self) -> None:
        self.should_exit = True


def without_metrics(app: ASGIApp) -> ASGIApp:
    """The app without its route `/metrics`, which tells strangers too much."""

    async def other_routes(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/metrics":
            detail = "metrics have a port of their own"
            problem = {"type": "about:blank", "title": "Not Found", "status": 404, "detail": detail}
            response = JSONResponse(problem, 404, media_type="application/problem+json")
            await response(scope, receive, send)
            return
        await app(scope, receive, send)

    return other_routes
