"""POSTs over kept-alive HTTP/1.1 connections, as cheaply as Python can.

A source does little else, and aiohttp's client was the largest single cost of an alert
(measured in docs/adr/0006-http-client.md). What no event needs is left out: redirects, cookies,
decompression, pipelining, streams. httptools parses the answers; uvicorn too parses with it.
"""

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, Self, cast
from urllib.parse import urlsplit

import httptools

DETAIL_BYTES = 1024  # of an answer's body; Knative keeps as many with a dead letter
LONGEST_ANSWER = 1 << 20  # bytes; the rest of a longer answer is not read


class Unreachable(OSError):
    """No connection could be made: nothing was sent."""


class Response(NamedTuple):
    """The answer to a POST: its status, header Retry-After, and the beginning of its body."""

    status: int
    retry_after: str | None
    detail: bytes


class Connections:
    """Kept-alive connections to any number of hosts, for one event loop.

    An async context manager: on leaving it aborts all connections.

    Parameters
    ----------
    concurrency
        Most requests under way to a host; further requests wait. 0 for any number.
    idle_seconds
        A connection that was idle for longer is not used again. Choose less than the servers do.
    connect_seconds
        Time that a host has to accept a connection.
    answer_seconds
        A request fails if no byte moves in either direction for this long.

    Attributes
    ----------
    made
        How many connections were made so far.
    """

    def __init__(
        self, concurrency: int, idle_seconds: float, connect_seconds: float, answer_seconds: float
    ) -> None:
        self._concurrency = concurrency
        self._idle_seconds = idle_seconds
        self._connect_seconds = connect_seconds
        self._answer_seconds = answer_seconds
        self._idle: dict[_Host, list[_Connection]] = defaultdict(list)  # last used last
        self._busy: set[_Connection] = set()
        self._limits: dict[_Host, asyncio.Semaphore] = {}
        self.made = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in [*self._busy, *(each for idle in self._idle.values() for each in idle)]:
            connection.abort()
        await asyncio.sleep(0)  # they close in the loop's next turn

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Send `body`, once.

        Raises
        ------
        Unreachable
            No connection could be made.
        OSError
            The connection was cut, or the answer is not HTTP.
        TimeoutError
            No byte moved for too long.
        ValueError
            The headers cannot be sent.
        """
        target = _target(url)
        head = _head(target, headers, len(body))
        if not self._concurrency:
            return await self._exchange(target.host, head, body)
        limit = self._limits.setdefault(target.host, asyncio.Semaphore(self._concurrency))
        async with limit:
            return await self._exchange(target.host, head, body)

    async def _exchange(self, host: "_Host", head: bytes, body: bytes) -> Response:
        connection = self._reuse(host) or await self._connect(host)
        self._busy.add(connection)
        try:
            response = await connection.exchange(head, body, self._answer_seconds)
        except BaseException:
            connection.abort()
            raise
        finally:
            self._busy.discard(connection)
        if connection.reusable:
            self._idle[host].append(connection)
        else:
            connection.abort()
        return response

    def _reuse(self, host: "_Host") -> "_Connection | None":
        """The connection used last. If it was idle for too long, all others were too."""
        idle, now = self._idle[host], asyncio.get_running_loop().time()
        while idle:
            connection = idle.pop()
            if connection.reusable and now - connection.idle_since < self._idle_seconds:
                return connection
            connection.abort()
        return None

    async def _connect(self, host: "_Host") -> "_Connection":
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop),
                    host.name,
                    host.port,
                    ssl=_trust() if host.secure else None,
                )
        except TimeoutError:
            raise Unreachable(f"{host} did not answer in {self._connect_seconds:g} s") from None
        except OSError as error:
            raise Unreachable(f"cannot connect to {host}: {error}") from error
        self.made += 1
        return connection


class _Host(NamedTuple):
    name: str
    port: int
    secure: bool

    def __str__(self) -> str:
        return f"{self.name}:{self.port}"


class _Target(NamedTuple):
    host: _Host
    line: str  # the request's first lines


@lru_cache(maxsize=256)
def _target(url: str) -> _Target:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    if not parts.hostname:
        raise Unreachable(f"not a URL: {url}")
    host = _Host(parts.hostname, parts.port or (443 if secure else 80), secure)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _Target(host, f"POST {path} HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\n")


@lru_cache(maxsize=1)
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


def _head(target: _Target, headers: Mapping[str, str], length: int) -> bytes:
    """The request up to its body. Raises `ValueError`."""
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    text = f"{target.line}{''.join(lines)}Content-Length: {length}\r\n\r\n"
    # A line break within a value would begin another header, or another request.
    breaks = len(lines) + 4
    if not text.count("\n") == text.count("\r") == text.count("\r\n") == breaks or "\0" in text:
        raise ValueError("a header cannot be sent: it contains a line break or a null")
    return text.encode()


class _Connection(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport
        self._answer: asyncio.Future[Response] | None = None
        self._gone = False
        self.idle_since = loop.time()

    async def exchange(self, head: bytes, body: bytes, seconds: float) -> Response:
        """Send a request and wait for its answer."""
        self._answer = self._loop.create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._retry_after: str | None = None
        self._detail, self._received, self._has_headers = b"", 0, False
        self._ends_with_connection = True
        self._keep = False
        self._transport.write(head)
        if body:
            self._transport.write(body)  # not copied, however large
        self._alarm = self._loop.call_later(seconds, self._late, seconds, self._moved)
        try:
            return await self._answer
        finally:
            self._alarm.cancel()
            self._answer = None

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent: the last one and its answer are complete."""
        return self._keep and not self._gone

    def abort(self) -> None:
        """Close the connection at once."""
        self._keep = False
        self._transport.abort()

    @property
    def _moved(self) -> tuple[int, int]:
        return self._received, self._transport.get_write_buffer_size()

    def _late(self, seconds: float, moved: tuple[int, int]) -> None:
        if self._moved != moved:
            self._alarm = self._loop.call_later(seconds, self._late, seconds, self._moved)
        else:
            self._fail(TimeoutError(f"no answer in {seconds:g} s"))

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._keep = True

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.abort()  # an answer to no request
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(OSError("the answer changes the protocol"))
        except httptools.HttpParserError as error:
            self._fail(OSError(f"the answer is not HTTP: {error}"))

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._gone = True
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        """The connection ended: so does an answer that has no length of its own."""
        if self._answer is None or self._answer.done():
            return
        if error is None and self._has_headers and self._ends_with_connection:
            self._finish(keep=False)
        else:
            self._fail(ConnectionResetError(f"the connection was cut: {error or 'no answer'}"))

    def _fail(self, error: OSError) -> None:
        if self._answer and not self._answer.done():
            self._answer.set_exception(error)

    def _finish(self, keep: bool) -> None:
        if self._answer and not self._answer.done():
            self.idle_since = self._loop.time()
            # A server that answers before it has the whole request reads no further.
            self._keep = keep and not self._transport.get_write_buffer_size()
            status = self._parser.get_status_code()
            self._answer.set_result(Response(status, self._retry_after, self._detail))

    # -- called by the parser

    def on_message_begin(self) -> None:
        if self._answer and self._answer.done():
            self._keep = False  # a second answer, to no request

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"retry-after":
            self._retry_after = value.decode("latin-1")
        elif name in (b"content-length", b"transfer-encoding"):
            self._ends_with_connection = False

    def on_headers_complete(self) -> None:
        self._has_headers = True

    def on_body(self, data: bytes) -> None:
        if len(self._detail) < DETAIL_BYTES:
            self._detail += data[: DETAIL_BYTES - len(self._detail)]
        if self._received > LONGEST_ANSWER:
            self._finish(keep=False)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() >= 200:  # otherwise another follows
            self._finish(self._parser.should_keep_alive())
