"""A connection's transport that counts what its client takes of its responses, and reads slowly."""

import asyncio
from collections.abc import Callable
from typing import Any

# A body up to here is sent together with the head of its response.
WITH_HEAD = 64 << 10


class ResponseTransport:
    """The transport of one connection, as uvicorn uses it.

    uvicorn writes the head of a response and its body apart, and uvloop sends each write at once.
    Here they are one packet: one system call less, and the client wakes up once.

    Parameters
    ----------
    closes_slowly
        Called when the server closes the connection: whether it is closed later, because bytes of
        the client may still come.

    Attributes
    ----------
    written
        Bytes written so far.
    held
        Whether `hold_reading` holds the connection.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        closes_slowly: Callable[[], bool] = lambda: False,
    ) -> None:
        self._transport = transport
        self._closes_slowly = closes_slowly
        self._loop = loop
        self._head = b""
        self._paused = self.held = False
        self.written = 0

    @property
    def taken(self) -> int:
        """Bytes that the client, or the kernel for it, has taken so far."""
        return self.written - self.get_write_buffer_size()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write bytes; those of a head wait for the body, or for the event loop's next turn.

        Once the connection is lost, they are dropped.
        """
        if self._transport.is_closing():
            return
        self.written += len(data)
        if self._head and len(data) <= WITH_HEAD:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif self._head:
            self.flush()
            self._transport.write(data)
        elif data.startswith(b"HTTP/1."):
            self._head = data
            self._loop.call_soon(self.flush)
        else:
            self._transport.write(data)

    def pause_reading(self) -> None:
        """Read nothing until `resume_reading`."""
        self._paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again, unless the connection is held."""
        self._paused = False
        if not self.held:
            self._transport.resume_reading()

    def hold_reading(self, seconds: float) -> None:
        """Read nothing for some seconds."""
        if not self._transport.is_closing():
            self.held = True
            self._transport.pause_reading()
            self._loop.call_later(seconds, self._release)

    def _release(self) -> None:
        self.held = False
        if not (self._paused or self._transport.is_closing()):
            self._transport.resume_reading()

    def flush(self) -> None:
        """Send the head that waits, if there is one."""
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)

    def get_write_buffer_size(self) -> int:
        """Bytes that were written and not taken."""
        return len(self._head) + self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Send what was written, then close."""
        self.flush()
        if not self._closes_slowly():
            self._transport.close()

    def write_eof(self) -> None:
        """Send what was written, then the end."""
        self.flush()
        self._transport.write_eof()
