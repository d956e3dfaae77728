"""The HTTP endpoint of a function: an event by POST, answered when its data is durable.

It also serves `/metrics` and `/health/…`. The POST is plain ASGI rather than a Starlette route,
because it is the hot path.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any, NamedTuple, Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from stampede.config.settings import Settings
from stampede.errors import NotAnEvent, NotAuthorized, Overloaded, StampedeError, TooLarge
from stampede.events.auth.access import Senders, senders
from stampede.events.cloudevents.attributes import RECORD_LENGTH
from stampede.events.cloudevents.event import Event, parse
from stampede.events.http.byte_budget import Budget
from stampede.events.http.status_routes import Fault, none, status_routes
from stampede.http.problem_details import problem_json
from stampede.telemetry import event_metrics, tracing
from stampede.telemetry.logs import get_logger

log = get_logger()

Handle = Callable[[Event], Awaitable[StampedeError | None]]
Headers = Iterable[tuple[bytes, bytes]]
Parse = Callable[[Headers, bytes, str], Event]

HELD_BYTES = 256 << 20
STRUCTURED = b"application/cloudevents+json"
ATTRIBUTE_BYTES = RECORD_LENGTH + (1 << 20)
RETRY_SECONDS = 1  # for a sender that is answered 429
DETAIL_LENGTH = 800  # Knative keeps the first 1,024 bytes of the answer with a dead letter


class Reply(NamedTuple):
    """The response to an event: a status, and a problem document (RFC 9457) if it is not stored."""

    status: int
    body: bytes = b""

    @property
    def retry_after(self) -> str | None:
        """The header of that name: seconds; None if there is none."""
        return str(RETRY_SECONDS) if self.status == Overloaded.status else None


class HttpBinding(NamedTuple):
    """How requests carry events: a protocol binding in the terms of CloudEvents.

    Attributes
    ----------
    parse
        Makes an event of a request; raises `StampedeError`.
    accepted
        Status of the response if the event is taken.
    key_in_path
        Whether the path of a request may be the key.
    """

    parse: Parse = parse
    accepted: int = 204
    key_in_path: bool = False


DEFAULT_BINDING = HttpBinding()


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
        order after the last response.
    held_bytes
        Most bytes of all bodies that are being read or handled; to more the response is 429.
    senders
        Which senders may send events; None: all. A stranger is answered 401, its body unread.
    binding
        How requests carry events.

    Attributes
    ----------
    not_alive, not_ready
        What `/health/…` tells, as of `status_routes`.
    """

    def __init__(
        self,
        name: str,
        handle: Handle,
        limit: int,
        resources: Sequence[AbstractAsyncContextManager[Any]] = (),
        *,
        held_bytes: int = HELD_BYTES,
        senders: Senders | None = None,
        binding: HttpBinding = DEFAULT_BINDING,
    ) -> None:
        self._name = name
        self._handle = handle
        self._limit = limit
        self._senders = senders or Senders()
        self._key_in_path = binding.key_in_path
        self._budget = Budget(held_bytes)
        event_metrics.HELD_BYTES.labels(name).set_function(lambda: self._budget.held)
        # Found once: every event is counted.
        self._stored = event_metrics.EVENTS.labels(name, "stored")
        self._seconds = event_metrics.EVENT_SECONDS.labels(name)
        self._step = f"{name} takes event"
        self._resources = resources
        self._parse = binding.parse
        self._accepted = Reply(binding.accepted)
        self.not_alive: Fault = none
        self.not_ready: Fault = none
        routes = status_routes(
            not_alive=lambda: self.not_alive(), not_ready=lambda: self.not_ready()
        )
        self._other_routes = Starlette(
            routes=[*routes, Route("/", self._about)], lifespan=self._lifespan
        )
        # Starlette redirects a path with a slash too many to the host that the request names.
        self._other_routes.router.redirect_slashes = False

    @classmethod
    def of(
        cls,
        name: str,
        handle: Handle,
        settings: Settings,
        resources: Sequence[AbstractAsyncContextManager[Any]] = (),
        **options: Any,
    ) -> Self:
        """The endpoint with the bounds of the settings; other parameters as of the class."""
        options = {"limit": settings.max_alert_bytes} | options
        return cls(
            name,
            handle,
            resources=resources,
            held_bytes=settings.queue_bytes,
            senders=senders(settings),
            **options,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._other_routes(scope, receive, send)
            return
        headers, path = scope["headers"], scope["path"]

        async def read(body: Body) -> bytes:
            await self._senders.check(headers, path if self._key_in_path else None)
            return await body.read(headers, receive)

        await respond(send, await self._take(headers, self._senders.without_key(path), read))

    async def take(self, headers: Headers, data: bytes) -> Reply:
        """The reply to an event of this process, which need not prove itself.

        It counts and is bounded as one that comes by HTTP.
        """

        async def read(body: Body) -> bytes:
            return body.hold(headers, data)

        return await self._take(headers, "/", read)

    async def _take(
        self, headers: Headers, path: str, read: "Callable[[Body], Awaitable[bytes]]"
    ) -> Reply:
        """The reply to the event whose body `read` gets."""
        begin = time.perf_counter()
        event = None
        body = Body(self._budget, self._limit)
        try:
            data = await read(body)
            event = self._parse(headers, data, path)
            error = await self._traced(event)
        except StampedeError as raised:
            error = raised
        except Exception as bug:
            log.exception("event failed", function=self._name, source_event=str(event))
            error = StampedeError(f"internal error: {bug!r}")
        finally:
            body.release()
        seconds = time.perf_counter() - begin
        self._seconds.observe(seconds)
        if error is None:
            self._stored.inc()
            return self._accepted
        event_metrics.EVENTS.labels(self._name, error.name).inc()
        return self._refused(event, error, seconds)

    async def _traced(self, event: Event) -> StampedeError | None:
        """Handle an event, as a step of its trace if that is recorded."""
        with tracing.step(self._step, event.traceparent) as step:
            if step is None:
                return await self._handle(event)
            tracing.note({"cloudevents.event_id": event.attributes["id"]})
            error = await self._handle(event.continued(step))
            if error:
                step.fail(error.name)
            return error

    def _refused(self, event: Event | None, error: StampedeError, seconds: float) -> Reply:
        """Log the error, and make a reply of it; `event` is None if there was no event."""
        log.warning(
            "event refused",
            function=self._name,
            id=event.attributes["id"] if event else None,
            source=event.attributes["source"] if event else None,
            outcome=error.name,
            status=error.status,
            reason=error.message,
            **({"tables": error.tables} if error.tables else {}),
            bytes=len(event.data) if event else None,
            milliseconds=round(seconds * 1000),
            **tracing.log_fields(event.traceparent if event else None),
        )
        detail = f"{event}: {error.message}" if event else error.message
        return Reply(error.status, problem_json(error, detail[:DETAIL_LENGTH]))

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


class Body:
    """The body of one request; its bytes are counted in a budget before they are read.

    After an error the rest is not read here. The server drops it, without keeping it.

    Parameters
    ----------
    budget
        Shared with all other requests.
    limit
        Most bytes of the body.
    """

    def __init__(self, budget: Budget, limit: int) -> None:
        self._budget = budget
        self._limit = limit
        self._taken = 0

    async def read(self, headers: Headers, receive: Receive) -> bytes:
        """The complete body.

        Raises
        ------
        TooLarge
            It is larger than the limit, or says so.
        Overloaded
            The budget has no room for it.
        NotAnEvent
            The sender goes away.
        """
        fields = dict(headers)
        with suppress(KeyError, ValueError):  # a body in chunks has no length
            self._take(int(fields[b"content-length"]), fields)
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise NotAnEvent("the sender went away before the end of the body")
            part = message.get("body", b"")
            size += len(part)
            self._take(size, fields)
            parts.append(part)
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def hold(self, headers: Headers, data: bytes) -> bytes:
        """Count a body that is in memory. Raises `TooLarge`, `Overloaded`."""
        self._take(len(data), dict(headers))
        return data

    def release(self) -> None:
        """Give the bytes back to the budget."""
        self._budget.give_back(self._taken)
        self._taken = 0

    def _take(self, size: int, fields: Mapping[bytes, bytes]) -> None:
        """Count `size` bytes in all. Raises `TooLarge`, `Overloaded`."""
        limit = self._limit
        if fields.get(b"content-type", b"").startswith(STRUCTURED):
            limit = limit * 4 // 3 + ATTRIBUTE_BYTES  # the data in base64, and the attributes
        if size > limit:
            event_id = fields.get(b"ce-id", b"?").decode("latin-1")
            raise TooLarge(
                f"event {event_id} has a body of {size:,} bytes or more, the limit is {limit:,}"
            )
        if size > self._taken:
            self._budget.take(size - self._taken, own=self._taken)
            self._taken = size


async def respond(send: Send, reply: Reply) -> None:
    """Send a reply. An empty body means: no reply event."""
    headers = [(b"content-length", str(len(reply.body)).encode())]
    if reply.retry_after:
        headers.append((b"retry-after", reply.retry_after.encode()))
    if reply.status == NotAuthorized.status:
        # The connection is closed: what a stranger still sends is worth no work.
        headers += [(b"www-authenticate", b"Bearer"), (b"connection", b"close")]
    if reply.body:
        headers.append((b"content-type", b"application/problem+json"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
