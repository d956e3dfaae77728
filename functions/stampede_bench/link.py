"""A link to a distant site, with a delay and without a bandwidth limit.

A TCP proxy on loopback in a process of its own (``python -m stampede_bench.link PORT TO MS``). It
passes all data on after half a round trip, in both directions. The data of a new connection waits
one more round trip, like the TCP handshake on a real link.
"""

import asyncio
import socket
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import uvloop

from stampede_local.ports import free_port
from stampede_local.process import Process, wait_until


@contextmanager
def link(directory: Path, port: int, milliseconds: int) -> Iterator[int]:
    """Start a link to `port`; its port. The round trip through it takes `milliseconds`."""
    near = free_port()
    command = [sys.executable, "-m", "stampede_bench.link", *map(str, (near, port, milliseconds))]
    process = Process(f"link-{milliseconds}-ms", command, directory / f"link-{near}.log")
    process.start()

    def listens() -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", near), timeout=1).close()
            return True
        return False

    try:
        wait_until(listens, process)
        yield near
    finally:
        process.stop()


class End(asyncio.Protocol):
    """One end of a connection: what arrives here leaves the other end later."""

    def __init__(self, seconds: float, other: "End | None" = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._first = 0.0  # time before which nothing is passed on
        self._due: deque[tuple[float, bytes | None]] = deque()
        self._alarm: asyncio.Handle | None = None
        self._ended = 0  # number of directions that ended
        self._transport: asyncio.Transport | None = None
        self.other = other

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class is not a subclass
        if self.other:
            self.other._pass_on()

    def dial(self, port: int) -> None:
        """Connect the other end."""
        self._first = self._loop.time() + 3 * self._seconds
        self.other = far = End(self._seconds, self)
        self._dialling = self._loop.create_task(self._dial(far, port))

    async def _dial(self, far: "End", port: int) -> None:
        try:
            await self._loop.create_connection(lambda: far, "127.0.0.1", port)
        except OSError:
            assert self._transport
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._later(data)

    def eof_received(self) -> bool:
        """See `asyncio.Protocol`: the other direction may continue."""
        self._later(b"")
        self._end()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._later(None)

    def _later(self, data: bytes | None) -> None:
        self._due.append((max(self._loop.time() + self._seconds, self._first), data))
        if self._alarm is None:
            self._pass_on()

    def _end(self) -> None:
        self._ended += 1
        if self._ended == 2 and self._transport:
            self._transport.close()

    def _pass_on(self) -> None:
        """Write what is due to the other end, and schedule the rest."""
        self._alarm = None
        if not (self.other and self.other._transport):
            return  # the other end calls this when it is connected
        now = self._loop.time()
        while self._due and self._due[0][0] <= now:
            data = self._due.popleft()[1]
            if data is None:
                self.other._transport.close()
            elif self.other._transport.is_closing():
                continue
            elif data:
                self.other._transport.write(data)
            else:
                self.other._transport.write_eof()
                self.other._end()
        if self._due:
            self._alarm = self._loop.call_at(self._due[0][0], self._pass_on)


async def run(near: int, far: int, milliseconds: float) -> None:
    """Serve until the process ends."""

    class Near(End):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            """See `asyncio.Protocol`; also connects the other end."""
            super().connection_made(transport)
            self.dial(far)

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Near(milliseconds / 2000), "127.0.0.1", near)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(run(*map(int, sys.argv[1:4])))
