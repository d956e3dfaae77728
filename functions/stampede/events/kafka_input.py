"""Kafka as the input of a function: it takes its alerts from there itself.

They become the same events as a source's, and the function checks, bounds and counts them in the
same way. But they cross no connection: docs/adr/0051-one-process.md has what that saves.
"""

import asyncio
from collections.abc import Callable, Mapping

from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from stampede.connection import DETAIL_BYTES, Response
from stampede.events.event_endpoint import EventEndpoint
from stampede.events.source import check_input, send_alerts
from stampede.events.source_health import SourceHealth
from stampede.events.status_routes import status_routes
from stampede.settings import Settings

ACCEPTED = Response(204, None, b"")


class KafkaInput:
    """Passes the alerts of the settings' topics to a function, on its event loop.

    It is the function's ASGI app too: its health is that of a source, all else is the function's.

    Parameters
    ----------
    name
        The function's.
    function
        Takes the events.
    settings
        Those of the function and of a source, without a sink.

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
        self._status = Starlette(
            routes=status_routes(not_alive=self._health.not_alive, not_ready=self._health.not_ready)
        )
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None]  # made by `start`

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["path"].startswith("/health/"):
            await self._status(scope, receive, send)
        else:
            await self._function(scope, receive, send)

    def start(self, ended: Callable[[], None]) -> None:
        """Begin to take alerts; `ended` is called when that ends, for whatever reason."""
        url = f"function:{self._name}"  # where a dead letter says that it was refused
        self._task = asyncio.create_task(
            send_alerts(self._settings, url, self._health, self._stop, self)
        )
        self._task.add_done_callback(lambda _: ended())

    async def stop(self) -> BaseException | None:
        """Wait for the alerts in flight, commit, and leave Kafka; return why it had failed."""
        self._stop.set()
        await asyncio.wait([self._task])
        return self._task.exception()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        """The function's answer to an event, as if it had come by HTTP.

        It has no time limit: the function bounds how long an event takes (`flush_seconds`).
        """
        fields = [(name.encode(), text.encode()) for name, text in headers.items()]
        refusal = await self._function.take(fields, body)
        if refusal is None:
            return ACCEPTED
        return Response(refusal.status, refusal.retry_after, refusal.body[:DETAIL_BYTES])
