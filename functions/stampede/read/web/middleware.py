"""What every request to `read` meets: warnings, metrics, and the headers of its response."""

import time
from functools import cache

from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stampede.http.security_headers import NOTHING, POLICY, SAFE_HEADERS
from stampede.lookup.response_warnings import ResponseWarnings
from stampede.read.web.cors import Cors
from stampede.telemetry.read_metrics import READ_BYTES, READ_SECONDS


class ResponseMiddleware:
    """ASGI middleware around all others, so that a response to a bug has these headers too.

    One middleware, since each wrapper of `send` costs every message of every response.
    """

    def __init__(self, app: ASGIApp, cors: Cors) -> None:
        self.app = app
        self._cors = cors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a preflight request; pass others on, add headers to the response, measure."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if preflight := self._cors.preflight(scope):
            headers = [*preflight, *SAFE_HEADERS, NOTHING]
            await send({"type": "http.response.start", "status": 204, "headers": headers})
            await send({"type": "http.response.body"})
            return
        began, status, sent = time.perf_counter(), 500, 0
        warnings = ResponseWarnings.begin()

        async def send_and_count(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = warnings.added_to(message["headers"])
                headers += self._cors.headers(scope)
                headers += SAFE_HEADERS
                if POLICY not in {name for name, _ in headers}:
                    headers.append(NOTHING)
                message["headers"] = headers
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, send_and_count)
        finally:
            # A route is labelled with the name of its function; never with an id.
            route = getattr(scope.get("endpoint"), "__name__", "none")
            _seconds(route, status).observe(time.perf_counter() - began)
            _bytes(route).inc(sent)


@cache
def _seconds(route: str, status: int) -> Histogram:
    return READ_SECONDS.labels(route, status)


@cache
def _bytes(route: str) -> Counter:
    return READ_BYTES.labels(route)
