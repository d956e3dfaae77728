"""Ends answers that their client does not take.

The server does so too (`stampede.events.http_protocol`) as far as it sees the client. Behind a
proxy it sees the proxy. Here the answer is also held to a pace, since a large query keeps others
from a slot while it lasts.
"""

import asyncio
import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stampede.metrics import CLIENTS_DROPPED

log = structlog.get_logger()

SLOWEST = 16 << 10
"""Bytes a second; a slower client is dropped. Only the seconds count in which the client is
waited for."""


class NotTaken(Exception):
    """The client does not take its answer."""


class SlowClients:
    """ASGI middleware that ends an answer of which nothing is taken for `seconds`."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self.app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; break the connection if the client is too slow."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        pace = _Pace(send, self._seconds)
        try:
            await self.app(scope, receive, pace.send)
        except Exception:
            if not pace.too_slow:
                raise
            # To return with the answer unfinished makes the server close the connection.
            CLIENTS_DROPPED.labels("answer").inc()
            log.warning("client dropped", part="answer", path=scope["path"], bytes=pace.sent)


class _Pace:
    """Sends one answer, and measures how long its client takes."""

    def __init__(self, send: Send, seconds: float) -> None:
        self._send, self._seconds = send, seconds
        self.sent, self.waited, self.too_slow = 0, 0.0, False

    async def send(self, message: Message) -> None:
        """Send a message. Raises `NotTaken`."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(message)
        except TimeoutError:
            self.too_slow = True
            raise NotTaken from None
        self.waited += time.monotonic() - began
        self.sent += len(message.get("body", b""))
        if self.waited > self._seconds and self.sent < SLOWEST * self.waited:
            self.too_slow = True
            raise NotTaken
