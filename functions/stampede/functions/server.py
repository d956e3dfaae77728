"""Runs a function as a server until a signal stops it, and lets it drain."""

import signal
import socket
import sys
from ipaddress import ip_address

import structlog
import uvicorn

from stampede.events.http_protocol import bounded_protocol
from stampede.functions.apps import make_app
from stampede.settings import Settings

log = structlog.get_logger()

DRAIN_SECONDS = 60


def serve(name: str, settings: Settings) -> None:
    """Serve a function until SIGTERM or Ctrl-C.

    Then refuse new requests, store and answer the waiting events, and return.
    """
    # After the drain uvicorn raises the signal that stopped it again; here that is success.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    if name != "read" and not settings.event_key.get_secret_value() and not is_loopback(settings):
        log.warning("anyone may send events: set STAMPEDE_EVENT_KEY", function=name)
    config = uvicorn.Config(
        make_app(name, settings),
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=bounded_protocol(settings.client_seconds),
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,  # `trusted_proxies` says whose X-Forwarded-For is believed
        timeout_keep_alive=75,  # longer than a source keeps an idle connection
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    sockets = None
    if settings.socket is not None:
        # The process that opened the socket keeps listening while this one restarts.
        sockets = [socket.socket(fileno=settings.socket)]
    server = uvicorn.Server(config)
    server.run(sockets)
    if not server.started:
        sys.exit(3)


def is_loopback(settings: Settings) -> bool:
    """Whether only this machine reaches the address that a server listens on."""
    try:
        return settings.host == "localhost" or ip_address(settings.host).is_loopback
    except ValueError:
        return False
