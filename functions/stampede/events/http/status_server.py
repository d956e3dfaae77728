"""A small server beside the main work of a process: `/metrics` and `/health/…`."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.applications import Starlette

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.events.http.bounded_protocol import bounded_protocol
from stampede.events.http.status_routes import Fault, status_routes


@asynccontextmanager
async def status_server(
    settings: Settings, port: int | None = None, **faults: Fault
) -> AsyncIterator[None]:
    """Serve `/metrics` and `/health/…` on `port`, else on the setting `port`.

    `faults` are those of `status_routes`.

    Raises `SetupError` if the port cannot be had.
    """
    port = settings.port if port is None else port
    try:
        listening = socket.create_server((settings.host, port))
    except OSError as error:
        raise SetupError(f"cannot listen on {settings.host}:{port}: {error.strerror}") from None
    config = uvicorn.Config(
        Starlette(routes=status_routes(**faults)),
        access_log=False,
        log_config=None,
        lifespan="off",
        loop="none",
        http=bounded_protocol(settings.client_seconds),
        ws="none",
        proxy_headers=False,
        timeout_graceful_shutdown=1,  # no client of these routes may delay the process's end
    )
    server = StatusServer(config)
    serving = asyncio.create_task(server.serve([listening]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving
        listening.close()


class StatusServer(uvicorn.Server):
    """A server that leaves the signals to the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signal."""
        yield
