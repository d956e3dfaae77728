"""What a transport sees of a connection: it reads little at a time.

uvloop reads 256 KB at a time. In one-byte chunks these take the parser 40 ms, and so long nobody
else is answered.
"""

import asyncio
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from stampede.events.http.bounded_protocol import BoundedProtocol

# A header has about 700 bytes; what comes with it of a body is copied three times.
READ_BYTES = 4 << 10


class SmallReads(asyncio.BufferedProtocol):
    """Passes a connection's bytes on: at most `READ_BYTES` in one piece, or a body's own memory.

    Parameters
    ----------
    requests
        The connection's requests.
    """

    def __init__(self, requests: "BoundedProtocol") -> None:
        self._requests = requests
        self._memory = memoryview(bytearray(READ_BYTES))

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
        """The client takes too little of its responses."""
        self._requests.pause_writing()

    def resume_writing(self) -> None:
        """The client takes its responses again."""
        self._requests.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The rest of the body that arrives, or memory for what must be parsed."""
        return self._requests.rest_of_body or self._memory

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes came."""
        if self._requests.rest_of_body:
            self._requests.body_received(nbytes)
        else:
            self._requests.data_received(bytes(self._memory[:nbytes]))
