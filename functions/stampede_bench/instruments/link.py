"""A link to a distant site, with a delay and without a bandwidth limit.

A TCP proxy on loopback in a process of its own (``python -m stampede_bench.instruments.link PORT TO
MS``). It passes all data on after half a round trip, in both directions. The data of a new
connection waits one more round trip, like the TCP handshake on a real link.

The data waits in pipes of the kernel (`splice`), because a real link takes none of the CPU that is
shared here. A proxy that copied it took 0.82 s a gigabyte at 150 ms and 0.42 s at 0 ms, of 13 s in
all processes: on two busy cores that alone made copies 3 % slower at 150 ms. This one takes 0.39
and 0.25 s, and the mean of all turns of `bench replicate` rose from 0.968 to 0.983.
"""

import asyncio
import fcntl
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvloop

from stampede_local.ports import free_port
from stampede_local.process import Process, started

READ = 1 << 20  # most bytes of a splice
MOST_PIPE = 32 << 20  # bytes; who is not root gets what /proc/sys/fs/pipe-max-size says


@contextmanager
def link(directory: Path, port: int, milliseconds: int) -> Iterator[int]:
    """Start a link to `port`; its port. The round trip through it takes `milliseconds`."""
    near = free_port()
    command = [
        sys.executable,
        "-m",
        "stampede_bench.instruments.link",
        *map(str, (near, port, milliseconds)),
    ]
    process = Process(f"link-{milliseconds}-ms", command, directory / f"link-{near}.log")

    def listens() -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", near), timeout=1).close()
            return True
        return False

    with started(process, listens):
        yield near


class Way:
    """One direction of a connection: what arrives at `source` leaves at `target` later.

    Parameters
    ----------
    seconds
        The delay.
    first
        Time of the loop before which nothing is passed on.
    ended, failed
        Called when the last byte and the end are passed on; when a socket fails.
    """

    def __init__(
        self,
        source: socket.socket,
        target: socket.socket,
        seconds: float,
        first: float,
        ended: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._source, self._target = source, target
        self._seconds, self._first = seconds, first
        self._ended, self._failed = ended, failed
        self._outlet, self._inlet = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._due: deque[tuple[float, int]] = deque()  # no bytes: the end
        self._ready = 0  # bytes that are due
        self._alarm: asyncio.Handle | None = None
        self._reads = self._writes = False  # whether the loop tells when a socket can
        self._read_on()

    def close(self) -> None:
        """Forget what is under way."""
        self._pause()
        self._stop_writing()
        if self._alarm:
            self._alarm.cancel()
        os.close(self._outlet)
        os.close(self._inlet)

    def _read_on(self) -> None:
        self._reads = True
        self._loop.add_reader(self._source, self._read)

    def _pause(self) -> None:
        if self._reads:
            self._reads = False
            self._loop.remove_reader(self._source)

    def _stop_writing(self) -> None:
        if self._writes:
            self._writes = False
            self._loop.remove_writer(self._target)

    def _read(self) -> None:
        try:
            count = moved(self._source.fileno(), self._inlet, READ)
        except BlockingIOError:
            if (self._due or self._ready) and not self._grown():
                self._pause()  # the pipe is full
            return
        except OSError:
            self._failed()
            return
        if not count:
            self._pause()
        self._due.append((max(self._loop.time() + self._seconds, self._first), count))
        if self._alarm is None and not self._writes:
            self._pass_on()

    def _grown(self) -> bool:
        """Make the pipe hold twice as much; whether that was allowed."""
        size = 2 * fcntl.fcntl(self._inlet, fcntl.F_GETPIPE_SZ)
        if size > MOST_PIPE:
            return False
        try:
            fcntl.fcntl(self._inlet, fcntl.F_SETPIPE_SZ, size)
        except OSError:
            return False
        return True

    def _pass_on(self) -> None:
        """Send what is due, and schedule the rest."""
        self._alarm = None
        now, ends = self._loop.time(), False
        while self._due and self._due[0][0] <= now and not ends:
            count = self._due.popleft()[1]
            self._ready += count
            ends = not count
        try:
            while self._ready:
                self._ready -= moved(self._outlet, self._target.fileno(), self._ready)
            self._stop_writing()
            if ends:
                self._target.shutdown(socket.SHUT_WR)
                self._ended()
                return
        except BlockingIOError:
            if ends:
                self._due.appendleft((now, 0))
            if not self._writes:
                self._writes = True
                self._loop.add_writer(self._target, self._pass_on)
            return
        except OSError:
            self._failed()
            return
        if self._due:
            if not self._reads and self._due[-1][1]:
                self._read_on()
            self._alarm = self._loop.call_at(self._due[0][0], self._pass_on)
        elif not self._reads:
            self._read_on()


def moved(source: int, target: int, most: int) -> int:
    """Move up to `most` bytes between two descriptors without a copy; how many there were.

    Raises `BlockingIOError` if the source has none now, or the target is full.
    """
    return os.splice(source, target, most, flags=os.SPLICE_F_NONBLOCK)


class Connection:
    """Both ways of a connection."""

    def __init__(self, near: socket.socket, far: socket.socket, seconds: float) -> None:
        self._sockets, self._open, self._closed = (near, far), 2, False
        first = asyncio.get_running_loop().time() + 3 * seconds
        self._ways = (
            Way(near, far, seconds, first, self._end, self._close),
            Way(far, near, seconds, 0.0, self._end, self._close),
        )

    def _end(self) -> None:
        self._open -= 1
        if not self._open:
            self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            for way in self._ways:
                way.close()
            for each in self._sockets:
                each.close()


async def run(near: int, far: int, milliseconds: float) -> None:
    """Serve until the process ends."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", near), backlog=1024) as server:
        server.setblocking(False)
        while True:
            here, _ = await loop.sock_accept(server)
            there = socket.socket()
            there.setblocking(False)
            try:
                await loop.sock_connect(there, ("127.0.0.1", far))
            except OSError:
                here.close()
                there.close()
                continue
            for each in (here, there):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Connection(here, there, milliseconds / 2000)


if __name__ == "__main__":
    uvloop.run(run(*map(int, sys.argv[1:4])))
