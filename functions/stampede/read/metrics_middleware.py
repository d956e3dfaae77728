"""Metrics of requests, by route and status; never by id."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stampede.metrics import READ_BYTES, READ_SECONDS


class MetricsMiddleware:
    """ASGI middleware that measures requests; a route is labelled with the name of its function."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and measure its response."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, sent = time.perf_counter(), 500, 0

        async def count_and_send(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, count_and_send)
        finally:
            route = getattr(scope.get("endpoint"), "__name__", "none")
            READ_SECONDS.labels(route, status).observe(time.perf_counter() - began)
            READ_BYTES.labels(route).inc(sent)
