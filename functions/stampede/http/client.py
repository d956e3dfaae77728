"""Requests over kept-alive HTTP/1.1 connections, as cheaply as Python can.

A source does little but POST, and aiohttp's client was the largest single cost of an alert
(measured in docs/adr/0006-http-client.md); `read` does little but GET (docs/adr/0028-fast-gets.md).
What neither needs is left out: redirects, cookies, decompression, pipelining, streams.
"""

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from stampede.addresses import shown
from stampede.http.connection import Connection
from stampede.http.resolver import Addresses
from stampede.http.response_reader import DETAIL_BYTES, Response


class Unreachable(OSError):
    """No connection could be made: nothing was sent."""


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
    headers
        Returns those that are sent with every request that does not have them.
    response_seconds
        A request fails if no byte moves in either direction for this long.
    trust
        Whose certificates are trusted; None: those of the public authorities.

    Attributes
    ----------
    made
        How many connections were made so far.
    """

    def __init__(
        self,
        concurrency: int,
        idle_seconds: float,
        connect_seconds: float,
        response_seconds: float,
        headers: Callable[[], Mapping[str, str]] | None = None,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._concurrency = concurrency
        self._idle_seconds = idle_seconds
        self._connect_seconds = connect_seconds
        self._response_seconds = response_seconds
        self._headers = headers or dict
        self._trust = trust
        self._addresses = Addresses()
        self._idle: dict[_Host, list[Connection]] = defaultdict(list)  # last used last
        self._busy: set[Connection] = set()
        self._limits: dict[_Host, asyncio.Semaphore] = {}
        self.made = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Abort all connections; what is under way fails."""
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
            The connection was cut, or the response is not HTTP.
        TimeoutError
            No byte moved for too long.
        ValueError
            The headers cannot be sent.
        """
        sent = {**self._headers(), **headers, "Content-Length": str(len(body))}
        return await self._request("POST", url, sent, body, DETAIL_BYTES)

    async def get(self, url: str, headers: Mapping[str, str], most: int) -> Response:
        """Ask for `url`, once; of the response's body the first `most` bytes are kept.

        Raises what `post` raises.
        """
        return await self._request("GET", url, {**self._headers(), **headers}, b"", most)

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, most: int
    ) -> Response:
        target = _target(method, url)
        head = _head(target, headers)
        if not self._concurrency:
            return await self._exchange(target.host, head, body, most)
        limit = self._limits.setdefault(target.host, asyncio.Semaphore(self._concurrency))
        async with limit:
            return await self._exchange(target.host, head, body, most)

    async def _exchange(self, host: "_Host", head: bytes, body: bytes, most: int) -> Response:
        connection = self._reuse(host) or await self._connect(host)
        self._busy.add(connection)
        try:
            response = await connection.exchange(head, body, self._response_seconds, most)
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

    def _reuse(self, host: "_Host") -> Connection | None:
        """The idle connection that was used last, if it may be used again; otherwise None."""
        idle, now = self._idle[host], asyncio.get_running_loop().time()
        while idle:
            connection = idle.pop()
            if connection.reusable and now - connection.idle_since < self._idle_seconds:
                return connection
            connection.abort()  # if it was idle for too long, all before it were too
        return None

    async def _connect(self, host: "_Host") -> Connection:
        try:
            async with asyncio.timeout(self._connect_seconds):
                connection = await self._connect_to_one(host, await self._addresses.of(host.name))
        except TimeoutError:
            self._addresses.forget(host.name)
            raise Unreachable(f"{host} did not answer in {self._connect_seconds:g} s") from None
        except OSError as error:
            self._addresses.forget(host.name)
            raise Unreachable(f"cannot connect to {host}: {error}") from error
        self.made += 1
        return connection

    async def _connect_to_one(self, host: "_Host", addresses: Sequence[str]) -> Connection:
        """Connect to the first address that accepts."""
        *others, last = addresses
        for address in others:
            with suppress(OSError):
                return await self._open(host, address)
        return await self._open(host, last)

    async def _open(self, host: "_Host", address: str) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: Connection(loop),
            address,
            host.port,
            ssl=(self._trust or _trust()) if host.secure else None,
            server_hostname=host.name if host.secure else None,
        )
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
def _target(method: str, url: str) -> _Target:
    """The host and the first lines of a request. Raises `Unreachable` if `url` has no host."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    if not parts.hostname:
        raise Unreachable(f"not a URL: {shown(url)}")
    host = _Host(parts.hostname, parts.port or (443 if secure else 80), secure)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _Target(host, f"{method} {path} HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\n")


@lru_cache(maxsize=1)
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


def _head(target: _Target, headers: Mapping[str, str]) -> bytes:
    """The request up to its body. Raises `ValueError` if a header contains a line break or null."""
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    text = f"{target.line}{''.join(lines)}\r\n"
    # A line break within a value would begin another header, or another request.
    breaks = len(lines) + 3
    if not text.count("\n") == text.count("\r") == text.count("\r\n") == breaks or "\0" in text:
        raise ValueError("a header cannot be sent: it contains a line break or a null")
    return text.encode()
