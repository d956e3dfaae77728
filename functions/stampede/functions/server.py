"""Runs a function as a server until it is told to stop, and lets it drain."""

import signal
import socket
import sys

import uvicorn

from stampede.functions.apps import make_app
from stampede.settings import Settings

DRAIN_SECONDS = 60


def serve(name: str, settings: Settings) -> None:
    """Serve a function until SIGTERM or Ctrl-C.

    Then it stops accepting, flushes what waits, answers it, and returns.
    """
    # Once drained, uvicorn raises the signal that stopped it again: for us that is success.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    config = uvicorn.Config(
        make_app(name, settings),
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=75,  # longer than a source keeps an idle connection
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    sockets = None
    if settings.socket is not None:
        # Whoever holds it goes on listening while this process is away.
        sockets = [socket.socket(fileno=settings.socket)]
    server = uvicorn.Server(config)
    server.run(sockets)
    if not server.started:
        sys.exit(3)
