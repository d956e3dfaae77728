"""Large bodies of requests arrive in memory of their size: they are copied once, by the kernel.

uvicorn receives a body in parts of 64 KB or less, copies each four times, and wakes the app for
each. What this saves is in docs/adr/0029-bodies.md.
"""

from functools import partial
from typing import Any
from weakref import ref

import httptools
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from stampede.events.http.bounded_protocol import NOTHING_MORE, BoundedProtocol, protocol_of
from stampede.events.http.small_reads import READ_BYTES

LARGE = 2 * READ_BYTES  # bytes of a body from which it has memory of its own


class LargeBodies(BoundedProtocol):
    """The requests of one connection to a function.

    A large body waits in the socket until the app asks for it: only then has the app counted its
    bytes, and only then is there memory for them. The parser does not see them.
    """

    _body: bytearray | None = None  # what the app waits for

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what came of a body."""
        self.rest_of_body, self._body = NOTHING_MORE, None
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        """The body begins; a large one waits."""
        super().on_headers_complete()
        length = self._length()
        if length > LARGE and not self.pipeline:
            cycle: Any = self.cycle
            self._body = None
            cycle.receive = partial(self._receive, ref(cycle), length)  # no cycle of references
            self.flow.pause_reading()

    def body_received(self, number: int) -> None:
        """So many bytes of a large body are in its memory."""
        rest = self.rest_of_body[number:]
        self.rest_of_body = rest or NOTHING_MORE  # an empty slice would keep the body in memory
        if not rest:
            # The old parser still waits for the body.
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            self.on_message_complete()
        elif self._receiving:
            self.part_read(self._receiving, 0, number)

    def _close_slowly(self) -> None:
        """What still comes of a body is dropped."""
        self.rest_of_body, self._body = NOTHING_MORE, None
        super()._close_slowly()

    def _length(self) -> int:
        """Bytes of the body; 0 if the header does not say."""
        lengths = [value for name, value in self.headers if name == b"content-length"]
        in_chunks = any(name == b"transfer-encoding" for name, _ in self.headers)
        return 0 if in_chunks or len(lengths) != 1 else int(lengths[0])  # the parser checked it

    async def _receive(self, of: "ref[RequestResponseCycle]", length: int) -> Any:
        """The whole body as one message of ASGI. The app calls it once the body is welcome."""
        cycle: Any = of()
        if self._body is None:
            if not cycle.more_body or cycle.disconnected or cycle.response_complete:
                return await RequestResponseCycle.receive(cycle)
            self._begin(cycle, length)
        if cycle.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            cycle.waiting_for_100_continue = False
        self.flow.resume_reading()
        await cycle.message_event.wait()
        cycle.message_event.clear()
        body, self._body = self._body, None
        if cycle.disconnected or cycle.response_complete:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body, "more_body": False}

    def _begin(self, cycle: RequestResponseCycle, length: int) -> None:
        """Make memory for the body, and put there what came with the header."""
        self._body, begin = bytearray(length), len(cycle.body)
        self._body[:begin] = cycle.body
        cycle.body = bytearray()
        cycle.message_event.clear()
        self.rest_of_body = memoryview(self._body)[begin:]


def body_protocol(client_seconds: float) -> Any:
    """As `bounded_protocol`, for a server that takes large bodies."""
    return protocol_of(LargeBodies, client_seconds=client_seconds)
