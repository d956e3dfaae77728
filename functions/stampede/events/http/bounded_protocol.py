"""HTTP/1.1 as uvicorn and httptools speak it, with bounds on what one client may hold.

uvicorn bounds neither the bytes nor the time of a request's header, nor the time of its body or of
a response that its client does not read. Here a client that sends too much or moves nothing for too
long loses its connection, and with it all that the connection holds.
"""

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from stampede.errors import BadQuery, NotInTime, StampedeError, TooManyHeaders
from stampede.events.http.body_parts import QUERY_BYTES_A_PART, BodyParts, PartRate
from stampede.events.http.header_size import HeaderSize
from stampede.events.http.pace import HeaderPace, Pace, ResponsePace
from stampede.events.http.response_transport import ResponseTransport
from stampede.events.http.small_reads import SmallReads
from stampede.http.problem_details import problem_json
from stampede.http.security_headers import NOTHING, SAFE_HEADERS
from stampede.telemetry import event_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

# A Kafka record's headers become HTTP headers. Go, whose proxy stands before a function on
# Knative, accepts 1 MiB. Nothing that `read` is asked for needs a tenth of its bound.
HEADER_BYTES, HEADER_BYTES_OF_READ = 256 << 10, 64 << 10
# Bytes a second below which a client counts as one that holds a connection: of a body, and of an
# answer. A large query keeps others from a slot while its response is taken.
SLOWEST_BODY, SLOWEST_RESPONSE = 1024, 16 << 10
# The rest of a refused body of known length is read and dropped up to here: a client that is still
# sending may never see a response if its connection is closed.
DROPPED_BYTES = 64 << 20
# So much is read of a connection that will be closed.
LINGER_BYTES = 1 << 20
PIPELINED = 16  # requests that one connection may send before it has the first one's answer
CHECK_SECONDS = 5.0
LINGER_SECONDS = 1.0
NOTHING_MORE = memoryview(b"")
_SAFE = b"".join(b"%s: %s\r\n" % header for header in (*SAFE_HEADERS, NOTHING))


class BoundedProtocol(HttpToolsProtocol):
    """One connection of a server.

    Attributes
    ----------
    client_seconds
        Seconds in which a client must send its headers; and in which some bytes of its body must
        come, or some of its response be taken.
    header_bytes
        Most bytes of a request's target and headers, and of its trailers.
    part_rate
        Shared by the connections of one server.
    rest_of_body
        Memory for the bytes of a body that have not come; empty unless such a body is awaited.
    """

    client_seconds = 60.0
    header_bytes = HEADER_BYTES
    part_rate = PartRate()
    rest_of_body = NOTHING_MORE

    # -- called by the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to watch the connection."""
        self._answers = ResponseTransport(transport, self.loop, self._closes_slowly)
        super().connection_made(self._answers)  # type: ignore[arg-type]
        now = self.loop.time()
        self._idle_since = now
        self._receiving: Pace | None = None  # None between requests
        self._in_headers = False
        self._header = HeaderSize(self.header_bytes)
        self._parts = BodyParts()
        self._refusal: StampedeError | None = None
        self._refused = False
        self._last_response = (
            False  # whether the connection ends after the response that is awaited
        )
        self._dropped = 0
        self._sending = ResponsePace(now, SLOWEST_RESPONSE)
        self._check()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the watch."""
        self._watching.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes; refuse a header that does not end, or a body in parts that are too small."""
        if self._refused or self._last_response:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self.transport.pause_reading()  # until it is closed
            return
        before = self._parts
        super().data_received(data)
        if self._receiving is None or self._refused or self.transport.is_closing():
            return
        begun = self._parts is not before  # the body, after the header and in the same read
        try:
            if self._in_headers:
                self._header.add_read(len(data))
                return
            parts, moved = self._parts.end_read(None if begun else len(data))
        except (BadQuery, TooManyHeaders) as error:
            self._refuse(error)
            return
        if begun:
            self._receiving.move(moved, self.loop.time())
        else:
            self.part_read(self._receiving, parts, moved)

    def body_received(self, number: int) -> None:
        """So many bytes are in `rest_of_body`."""

    def part_read(self, receiving: Pace, parts: int, size: int) -> None:
        """Note that bytes of a body came. Stop reading for a moment if they are few."""
        now = self.loop.time()
        receiving.move(size, now)
        if seconds := self.part_rate.hold(parts, size, now):
            receiving.hold(seconds)
            self._answers.hold_reading(seconds)

    # -- called by the server

    def shutdown(self) -> None:
        """End the connection after its response; at once if it sends its body in small parts."""
        if self._answers.held and self._receiving:
            self._refuse(NotInTime("the request's body did not come before the server's end"))
        else:
            super().shutdown()

    # -- called by the parser

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._receiving = HeaderPace(self.loop.time())
        self._in_headers = True
        self._header = HeaderSize(self.header_bytes)

    def on_url(self, url: bytes) -> None:
        """Count a part of the request's target."""
        self._header.add_target(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. Drop a trailer: it would pass for a header, after checks of the header."""
        self._header.add_header(len(name) + len(value))
        if self._in_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The body begins. The parser would skip it if another protocol is asked for."""
        lengths = (b"content-length", b"transfer-encoding")
        if self.parser.should_upgrade() and any(name in lengths for name, _ in self.headers):
            self._refusal = BadQuery(
                "the request has a body and asks for another protocol: send it without Upgrade"
            )
            raise self._refusal
        self._in_headers = False
        self._header = HeaderSize(self.header_bytes)  # of trailers
        self._parts = BodyParts()
        self._receiving = Pace(self.loop.time(), SLOWEST_BODY)
        super().on_headers_complete()
        if len(self.pipeline) > PIPELINED:
            count_dropped("pipeline", self.client_seconds)
            self.transport.abort()
            raise NotInTime("more requests are sent than answers are taken")

    def on_body(self, body: bytes) -> None:
        """Take a part of the body; after the response, drop it."""
        self._parts.add(len(body))
        moved = self._receiving.bytes if self._receiving else 0
        if self.cycle.response_complete and moved > DROPPED_BYTES:
            self.transport.close()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._receiving = None
        self._idle_since = self.loop.time()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The response is complete. Read no more chunks: nobody knows how many will come."""
        self._idle_since = self.loop.time()
        super().on_response_complete()
        unfinished = self._receiving and not self._in_headers and self.cycle.response_complete
        if unfinished and any(name == b"transfer-encoding" for name, _ in self.headers):
            self._closes_slowly()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, or what a call of the parser has refused."""
        if self.transport.is_closing() or self._refused:
            return
        refusal = self._refusal or self._header.refusal
        self._refuse(refusal or BadQuery("the request is not HTTP/1.1"))

    # -- bounds

    def _check(self) -> None:
        now, seconds = self.loop.time(), self.client_seconds
        responses, receiving = self._answers, self._receiving
        if self._sending.is_too_slow(responses.written, responses.taken, now, seconds):
            count_dropped("answer", seconds)
            self.transport.abort()
            return
        self._watching = self.loop.call_later(min(CHECK_SECONDS, seconds / 4), self._check)
        if self.transport.is_closing() or self._refused or self._last_response:
            return
        if receiving and self.flow.read_paused:
            receiving.excuse(now)
        elif receiving and receiving.is_too_slow(now, seconds):
            part = "header" if self._in_headers else "body"
            count_dropped(part, seconds)
            self._refuse(NotInTime(f"the request's {part} did not come in time"))
        elif (
            not receiving
            and (self.cycle is None or self.cycle.response_complete)
            and now - self._idle_since > self.timeout_keep_alive
        ):
            # uvicorn's own time-out ends for good when one byte comes, even an empty line.
            self.transport.close()

    def _refuse(self, error: StampedeError) -> None:
        """Answer an unfinished request with an error, if there is no response yet, and close."""
        cycle: Any = self.cycle
        if self._in_headers and cycle is not None and not cycle.response_complete:
            # A request before this one has no response yet: it gets it, and this one none.
            self._last_response, cycle.keep_alive = True, False
            return
        between = self._receiving is None and (cycle is None or cycle.response_complete)
        unanswered = (
            between
            or self._in_headers
            or cycle is None
            or not (cycle.response_started or cycle.disconnected)
        )
        if unanswered:
            body = problem_json(error)
            self.transport.write(
                b"HTTP/1.1 %d %s\r\ncontent-type: application/problem+json\r\n"
                b"content-length: %d\r\n%sconnection: close\r\n\r\n%s"
                % (error.status, HTTPStatus(error.status).phrase.encode(), len(body), _SAFE, body)
            )
        if cycle is not None and not self._in_headers:
            cycle.disconnected = True  # the app's own response would be a second one
            cycle.message_event.set()
        self._close_slowly()

    def _closes_slowly(self) -> bool:
        """Whether a connection that the server closes is closed later: a body is not read yet."""
        if self._receiving is None or self._refused:
            return False
        self._close_slowly()
        return True

    def _close_slowly(self) -> None:
        """Send the end of the connection, and drop what comes for a moment.

        If it were closed while bytes come, the client would get a reset in place of the response.
        """
        self._refused = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)


def count_dropped(part: str, seconds: float) -> None:
    """Count and log a client that did not move so much as it has to in these seconds."""
    event_metrics.CLIENTS_DROPPED.labels(part).inc()
    log.warning("client dropped", part=part, seconds=seconds)


def protocol_of(
    requests: type[BoundedProtocol], bytes_a_part: int | None = None, **bounds: Any
) -> Any:
    """What makes the protocol of a connection, for uvicorn's setting `http`."""
    bounds["part_rate"] = PartRate(bytes_a_part)
    bounded = type(requests.__name__, (requests,), bounds)
    return lambda *arguments, **named: SmallReads(bounded(*arguments, **named))


def bounded_protocol(client_seconds: float) -> Any:
    """What makes the protocol of a server whose requests are small, with this bound in seconds."""
    return protocol_of(
        BoundedProtocol,
        QUERY_BYTES_A_PART,
        client_seconds=client_seconds,
        header_bytes=HEADER_BYTES_OF_READ,
    )
