"""One kept-alive HTTP/1.1 connection."""

import asyncio
from typing import cast

from stampede.http.response_reader import DETAIL_BYTES, Response, ResponseReader


class Connection(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport
        self._response: asyncio.Future[Response] | None = None
        self._reader = ResponseReader()
        self._gone = False
        self.idle_since = loop.time()

    async def exchange(
        self, head: bytes, body: bytes, seconds: float, most: int = DETAIL_BYTES
    ) -> Response:
        """Send a request and wait for its response; of its body the first `most` bytes are kept.

        Raises
        ------
        OSError
            The connection was cut, or the response is not HTTP.
        TimeoutError
            No byte moved in either direction for `seconds`.
        """
        self._response = self._loop.create_future()
        self._reader.begin(most)
        self._keep = False
        # One system call and one packet; the body is not copied, however large.
        self._transport.writelines([head, body] if body else [head])
        self._watch_progress(seconds)
        try:
            return await self._response
        finally:
            self._timer.cancel()
            self._response = None

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent: the last one and its response are complete."""
        return self._keep and not self._gone

    def abort(self) -> None:
        """Close the connection at once."""
        self._keep = False
        self._transport.abort()

    @property
    def _progress(self) -> tuple[int, int]:
        """Bytes received, and bytes still to send."""
        return self._reader.received, self._transport.get_write_buffer_size()

    def _watch_progress(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._check_progress, seconds, self._progress)

    def _check_progress(self, seconds: float, before: tuple[int, int]) -> None:
        if self._progress != before:
            self._watch_progress(seconds)
        else:
            self._fail(TimeoutError(f"no answer in {seconds:g} s"))

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)
        self._keep = True

    def data_received(self, data: bytes) -> None:
        """Parse a part of the response."""
        if self._response is None or self._response.done():
            self.abort()  # a response to no request
            return
        error = self._reader.feed(data)
        if self._reader.response:
            self._finish(self._reader.response)
        elif error:
            self._fail(error)

    def eof_received(self) -> None:
        """The server sends no more."""
        self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is closed."""
        self._gone = True
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        """The connection ended: this completes a response without a length, and cuts any other."""
        if self._response is None or self._response.done():
            return
        if error is None:
            self._reader.end()
        if self._reader.response:
            self._finish(self._reader.response)
        else:
            self._fail(ConnectionResetError(f"the connection was cut: {error or 'no answer'}"))

    def _fail(self, error: OSError) -> None:
        if self._response and not self._response.done():
            self._response.set_exception(error)

    def _finish(self, response: Response) -> None:
        if self._response and not self._response.done():
            self.idle_since = self._loop.time()
            # A server that responses before it has the whole request reads no further.
            self._keep = self._reader.keep_alive and not self._transport.get_write_buffer_size()
            self._response.set_result(response)
