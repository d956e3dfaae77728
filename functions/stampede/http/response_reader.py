"""One response of an HTTP/1.1 server, parsed with httptools, as uvicorn does."""

from typing import NamedTuple

import httptools

DETAIL_BYTES = 1024  # of the body of a response to a POST; Knative keeps as many with a dead letter
LONGEST_RESPONSE = 1 << 20  # bytes; the rest of a longer answer is not read


class Response(NamedTuple):
    """A response: its status, two headers, and as much of its body as was asked for."""

    status: int
    retry_after: str | None
    detail: bytes
    content_range: str | None = None


class ResponseReader:
    """Reads the responses that come over one connection, one at a time.

    Attributes
    ----------
    received
        Bytes since `begin`.
    response
        The response; None until it is complete.
    keep_alive
        Whether another request may follow the response.
    """

    def begin(self, most: int) -> None:
        """Expect a response; of its body the first `most` bytes are kept."""
        self._parser = httptools.HttpResponseParser(self)
        self._retry_after: str | None = None
        self._content_range: str | None = None
        self._parts: list[bytes] = []
        self._to_keep, self._has_headers = most, False
        self._ends_with_connection = True
        self.received = 0
        self.response: Response | None = None
        self.keep_alive = False

    def feed(self, data: bytes) -> OSError | None:
        """Parse a part of the response; returns what is wrong with it."""
        self.received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return OSError("the answer changes the protocol")
        except httptools.HttpParserError as error:
            return OSError(f"the answer is not HTTP: {error}")
        return None

    def end(self) -> None:
        """The server sends no more: this completes a response without a length."""
        if self._has_headers and self._ends_with_connection:
            self._complete(keep_alive=False)

    def _complete(self, keep_alive: bool) -> None:
        if self.response is None:
            self.keep_alive = keep_alive
            status, detail = self._parser.get_status_code(), b"".join(self._parts)
            self.response = Response(status, self._retry_after, detail, self._content_range)

    # -- called by the parser

    def on_message_begin(self) -> None:
        """A response begins."""
        if self.response:
            self.keep_alive = False  # a second response, to no request

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
        if self.received > LONGEST_RESPONSE:
            self._complete(keep_alive=False)

    def on_message_complete(self) -> None:
        """The response is complete, unless its status is 1xx."""
        if self._parser.get_status_code() >= 200:  # after 1xx another response follows
            self._complete(self._parser.should_keep_alive())
