"""The HTTP endpoint of a function: an event by POST, answered when its data is durable.

It also serves `/metrics` and `/health/…`. The POST is plain ASGI rather than a Starlette route,
because it is the hot path.
"""

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from stampede import metrics
from stampede.errors import NotAnEvent, StampedeError, TooLarge
from stampede.events.event import Event, parse
from stampede.problem import problem_document

log = structlog.get_logger()

Parse = Callable[[Iterable[tuple[bytes, bytes]], bytes, str], Event]
Handle = Callable[[Event], Awaitable[StampedeError | None]]

# A body over the limit is read and dropped up to this many times the limit: a client that is
# still sending when the answer comes may never see the answer.
READ_FACTOR = 4
DETAIL_LENGTH = 800  # Knative keeps the first 1,024 bytes of the answer with a dead letter


class EventEndpoint:
    """An ASGI app that passes each event to `handle` and answers with the outcome.

    Parameters
    ----------
    name
        The function's name, in logs and metrics.
    handle
        Returns None when the event's data is durable, otherwise the error to answer with.
    limit
        Most bytes of a body.
    resources
        What `handle` needs: entered in this order when the server starts, left in reverse
        order after the last answer.
    parse
        Makes an event of a request; raises `StampedeError`.
    accepted
        Status of the answer if `handle` returns None.
    """

    def __init__(
        self,
        name: str,
        handle: Handle,
        limit: int,
        resources: Sequence[AbstractAsyncContextManager[Any]] = (),
        *,
        parse: Parse = parse,
        accepted: int = 204,
    ) -> None:
        self._name = name
        self._handle = handle
        self._limit = limit
        self._resources = resources
        self._parse = parse
        self._accepted = accepted
        self._other_routes = Starlette(
            routes=[*status_routes(), Route("/", self._about)], lifespan=self._lifespan
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._other_routes(scope, receive, send)
            return
        begin = time.perf_counter()
        event = None
        try:
            body = await self._body(scope, receive)
            event = self._parse(scope["headers"], body, scope["path"])
            error = await self._handle(event)
        except StampedeError as raised:
            error = raised
        seconds = time.perf_counter() - begin
        metrics.EVENTS.labels(self._name, error.name if error else "stored").inc()
        metrics.EVENT_SECONDS.labels(self._name).observe(seconds)
        if error is None:
            await respond(send, self._accepted)
        else:
            await self._refuse(send, event, error, seconds)

    async def _refuse(
        self, send: Send, event: Event | None, error: StampedeError, seconds: float
    ) -> None:
        """Log the error and answer with it; `event` is None if the request was not an event."""
        log.warning(
            "event refused",
            function=self._name,
            id=event.attributes["id"] if event else None,
            source=event.attributes["source"] if event else None,
            outcome=error.name,
            status=error.status,
            reason=error.message,
            bytes=len(event.data) if event else None,
            milliseconds=round(seconds * 1000),
        )
        detail = f"{event}: {error.message}" if event else error.message
        problem = problem_document(error, detail[:DETAIL_LENGTH])
        await respond(send, error.status, json.dumps(problem).encode())

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The complete body. Raises `TooLarge`, or `NotAnEvent` if the sender goes away."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise NotAnEvent("the sender went away before the end of the body")
            part = message.get("body", b"")
            size += len(part)
            if size <= self._limit:
                parts.append(part)
            elif size > READ_FACTOR * self._limit:
                break
            if not message.get("more_body"):
                break
        if size > self._limit:
            event_id = dict(scope["headers"]).get(b"ce-id", b"?").decode("latin-1")
            raise TooLarge(
                f"event {event_id} has a body of {size:,} bytes, the limit is {self._limit:,}"
            )
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for resource in self._resources:
                await stack.enter_async_context(resource)
            yield

    async def _about(self, _: Request) -> Response:
        return PlainTextResponse(
            f"stampede {self._name}: POST a CloudEvent here; see /metrics, /health\n"
        )


async def respond(send: Send, status: int, body: bytes = b"") -> None:
    """Send a response. An empty body means: no reply event."""
    headers = [(b"content-length", str(len(body)).encode())]
    if body:
        headers.append((b"content-type", b"application/problem+json"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def status_routes() -> list[Route]:
    """The routes `/metrics` and `/health/…`."""
    return [
        Route("/metrics", metrics.endpoint),
        Route("/health/liveness", healthy),
        Route("/health/readiness", healthy),
    ]


async def healthy(_: Request) -> Response:
    """Answer 200: the process runs."""
    return PlainTextResponse("ok\n")
