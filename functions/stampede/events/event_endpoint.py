"""The one door of a function: a CloudEvent by POST, answered when what it brought is durable.

Beside it, `/metrics` and `/health/…`. The door is plain ASGI rather than a route: it is the hot
path, and all of it is on this page.
"""

import json
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from stampede import metrics
from stampede.errors import NotAnEvent, StampedeError, TooLarge
from stampede.events.event import Event, parse

log = structlog.get_logger()

Read = Callable[[Iterable[tuple[bytes, bytes]], bytes, str], Event]
Handle = Callable[[Event], Awaitable[StampedeError | None]]
ABANDON = 4  # a body of more than this many times the limit is not read to its end


class EventEndpoint:
    """An ASGI app that gives each event to `handle` and answers with its verdict.

    Parameters
    ----------
    name
        The function's, in logs and metrics.
    handle
        Takes an event; returns None when what it brought is durable, or the error to answer
        with.
    limit
        Most bytes of a body.
    lifespan
        Entered when the server starts, left when it has answered its last request.
    read
        Makes an event of a request; raises `StampedeError`.
    accepted
        Status that says that all is well.
    """

    def __init__(
        self,
        name: str,
        handle: Handle,
        limit: int,
        lifespan: Callable[[Any], AbstractAsyncContextManager] | None = None,
        *,
        read: Read = parse,
        accepted: int = 204,
    ) -> None:
        self._name = name
        self._handle = handle
        self._limit = limit
        self._read = read
        self._accepted = accepted
        self._rest = Starlette(
            routes=[
                Route("/metrics", metrics.endpoint),
                Route("/health/liveness", healthy),
                Route("/health/readiness", healthy),
                Route("/", about(name)),
            ],
            lifespan=lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._rest(scope, receive, send)
            return
        begin = time.perf_counter()
        event = None
        try:
            body = await self._body(scope, receive)
            event = self._read(scope["headers"], body, scope["path"])
            verdict = await self._handle(event)
        except StampedeError as error:
            verdict = error
        seconds = time.perf_counter() - begin
        metrics.EVENTS.labels(self._name, verdict.name if verdict else "stored").inc()
        metrics.EVENT_SECONDS.labels(self._name).observe(seconds)
        if verdict is None:
            await respond(send, self._accepted)
            return
        log.warning(
            "event refused",
            function=self._name,
            id=event.attributes["id"] if event else None,
            source=event.attributes["source"] if event else None,
            outcome=verdict.name,
            status=verdict.status,
            reason=verdict.message,
            bytes=len(event.data) if event else None,
            milliseconds=round(seconds * 1000),
        )
        about_event = f"{event}: {verdict.message}" if event else verdict.message
        await respond(send, verdict.status, problem(verdict, about_event))

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, or `TooLarge` once all of it (within reason) was read and dropped.

        A client still sending when it is answered may never see the answer.
        """
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
            elif size > ABANDON * self._limit:
                break
            if not message.get("more_body"):
                break
        if size > self._limit:
            name = dict(scope["headers"]).get(b"ce-id", b"?").decode("latin-1")
            raise TooLarge(
                f"event {name} has a body of {size:,} bytes, the limit is {self._limit:,}"
            )
        return parts[0] if len(parts) == 1 else b"".join(parts)


def problem(error: StampedeError, detail: str) -> bytes:
    """An RFC 9457 problem document; Knative keeps its beginning with a dead letter."""
    return json.dumps(
        {
            "type": f"urn:stampede:problem:{error.name}",
            "title": error.name.replace("-", " "),
            "status": error.status,
            "detail": detail[:800],
        }
    ).encode()


async def respond(send: Send, status: int, body: bytes = b"") -> None:
    """Send a whole response; an empty one says that no reply event is meant."""
    headers = [(b"content-length", str(len(body)).encode())]
    if body:
        headers.append((b"content-type", b"application/problem+json"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def healthy(_: Any) -> Response:
    """Answer that the process lives."""
    return PlainTextResponse("ok\n")


def about(name: str) -> Callable[[Any], Awaitable[Response]]:
    """What somebody sees who opens the door with a browser."""

    async def page(_: Any) -> Response:
        return PlainTextResponse(
            f"stampede {name}: POST a CloudEvent here; see /metrics, /health\n"
        )

    return page
