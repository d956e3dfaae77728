"""One kept-alive HTTP/1.1 connection. It parses answers with httptools, as uvicorn does."""

import asyncio
from typing import NamedTuple, cast

import httptools

DETAIL_BYTES = 1024  # of the body of an answer to a POST; Knative keeps as many with a dead letter
LONGEST_RESPONSE = 1 << 20  # bytes; the rest of a longer answer is not read


class Response(NamedTuple):
    """An answer: its status, two headers, and as much of its body as was asked for."""

    status: int
    retry_after: str | None
    detail: bytes
    content_range: str | None = None


class Connection(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport
        self._response: asyncio.Future[Response] | None = None
        self._gone = False
        self.idle_since = loop.time()

    async def exchange(
        self, head: bytes, body: bytes, seconds: float, most: int = DETAIL_BYTES
    ) -> Response:
        """Send a request and wait for its answer; of its body the first `most` bytes are kept.

        Raises
        ------
        OSError
            The connection was cut, or the answer is not HTTP.
        TimeoutError
            No byte moved in either direction for `seconds`.
        """
        self._response = self._loop.create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._retry_after: str | None = None
        self._content_range: str | None = None
        self._parts: list[bytes] = []
        self._to_keep, self._received, self._has_headers = most, 0, False
        self._ends_with_connection = True
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
        """Whether another request may be sent: the last one and its answer are complete."""
        return self._keep and not self._gone

    def abort(self) -> None:
        """Close the connection at once."""
        self._keep = False
        self._transport.abort()

    @property
    def _progress(self) -> tuple[int, int]:
        """Bytes received, and bytes still to send."""
        return self._received, self._transport.get_write_buffer_size()

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
        """Parse a part of the answer."""
        if self._response is None or self._response.done():
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
        """The server sends no more."""
        self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is closed."""
        self._gone = True
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        """The connection ended: this completes an answer without a length, and cuts any other."""
        if self._response is None or self._response.done():
            return
        if error is None and self._has_headers and self._ends_with_connection:
            self._finish(keep=False)
        else:
            self._fail(ConnectionResetError(f"the connection was cut: {error or 'no answer'}"))

    def _fail(self, error: OSError) -> None:
        if self._response and not self._response.done():
            self._response.set_exception(error)

    def _finish(self, keep: bool) -> None:
        if self._response and not self._response.done():
            self.idle_since = self._loop.time()
            # A server that answers before it has the whole request reads no further.
            self._keep = keep and not self._transport.get_write_buffer_size()
            status = self._parser.get_status_code()
            detail = b"".join(self._parts)
            self._response.set_result(
                Response(status, self._retry_after, detail, self._content_range)
            )

    # -- called by the parser

    def on_message_begin(self) -> None:
        """An answer begins."""
        if self._response and self._response.done():
            self._keep = False  # a second answer, to no request

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep what matters of one header."""
        name = name.lower()
        if name == b"retry-after":
            self._retry_after = value.decode("latin-1")
        elif name == b"content-range":
            self._content_range = value.decode("latin-1")
        elif name in (b"content-length", b"transfer-encoding"):
            self._ends_with_connection = False

    def on_headers_complete(self) -> None:
        """The body begins."""
        self._has_headers = True

    def on_body(self, data: bytes) -> None:
        """Keep the beginning of the body."""
        if self._to_keep:
            self._parts.append(data[: self._to_keep])
            self._to_keep -= len(self._parts[-1])
        if self._received > LONGEST_RESPONSE:
            self._finish(keep=False)

    def on_message_complete(self) -> None:
        """The answer is complete, unless its status is 1xx."""
        if self._parser.get_status_code() >= 200:  # after 1xx another answer follows
            self._finish(self._parser.should_keep_alive())
