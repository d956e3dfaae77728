"""Large bodies of requests arrive in memory of their size: they are copied once, by the kernel.

uvicorn receives a body in parts of 64 KB or less, copies each four times, and wakes the app for
each. What this saves is in docs/adr/0029-bodies.md.
"""

import asyncio
from functools import partial
from typing import Any, cast
from weakref import ref

import httptools
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from stampede.events.http_protocol import BoundedProtocol

# Most bytes of a request that are read in one piece before its body. A header has about 700; what
# comes with it of a body is copied three times.
SCRATCH_BYTES = 4 << 10
LARGE = 2 * SCRATCH_BYTES  # bytes of a body from which it has memory of its own


NOTHING = memoryview(b"")


class BodyProtocol(asyncio.BufferedProtocol):
    """What a transport sees of a connection: where to put the next bytes.

    Parameters
    ----------
    requests
        The connection's requests.
    """

    def __init__(self, requests: "LargeBodies") -> None:
        self._requests = requests
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._requests.connection_made(cast(asyncio.Transport, transport))

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._requests.connection_lost(exc)

    def eof_received(self) -> None:
        """The client sends no more; it may still read."""
        self._requests.eof_received()

    def pause_writing(self) -> None:
        """The client takes too little of its answers."""
        self._requests.pause_writing()

    def resume_writing(self) -> None:
        """The client takes its answers again."""
        self._requests.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The rest of the body that arrives, or memory for what must be parsed."""
        return self._requests.rest_of_body or self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes came."""
        if self._requests.rest_of_body:
            self._requests.body_received(nbytes)
        else:
            self._requests.data_received(bytes(self._scratch[:nbytes]))


class LargeBodies(BoundedProtocol):
    """The requests of one connection.

    A large body waits in the socket until the app asks for it: only then has the app counted its
    bytes, and only then is there memory for them. The parser does not see them.

    Attributes
    ----------
    rest_of_body
        The memory for those bytes of a body that have not come; empty if no large body is awaited.
    """

    rest_of_body = NOTHING
    _body: bytearray | None = None  # what the app waits for

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what came of a body."""
        self.rest_of_body, self._body = NOTHING, None
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
        if self._receiving:
            self._receiving.move(number, self.loop.time())
        rest = self.rest_of_body[number:]
        self.rest_of_body = rest or NOTHING  # an empty slice would keep the body in memory
        if not rest:
            # The old parser still waits for the body.
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            self.on_message_complete()

    def _close_slowly(self) -> None:
        """What still comes of a body is dropped."""
        self.rest_of_body, self._body = NOTHING, None
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
    """What makes a `BodyProtocol`, for uvicorn's setting `http`, with this bound in seconds."""
    bounded = type("LargeBodies", (LargeBodies,), {"client_seconds": client_seconds})
    return lambda *arguments, **named: BodyProtocol(bounded(*arguments, **named))
