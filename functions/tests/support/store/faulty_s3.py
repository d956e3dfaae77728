"""An S3 endpoint for tests that gives the responses a test has written, byte for byte."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

Answer = Callable[[socket.socket], bool]
"""Writes a response to a connection; returns whether the connection stays open."""


def answer(status: str, body: bytes = b"", *headers: str, missing: int = 0) -> Answer:
    """A whole response; or one whose body ends `missing` bytes early, with the connection."""

    def write(connection: socket.socket) -> bool:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) + missing}", *headers]
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        return not missing

    return write


def error(status: str, code: str) -> Answer:
    """An error as S3 sends it."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>so</Message></Error>"
    return answer(status, body.encode(), "Content-Type: application/xml")


def part(data: bytes, start: int, size: int, missing: int = 0) -> Answer:
    """A range of an object of `size` bytes, as S3 sends it."""
    stop = start + len(data) + missing
    return answer(
        "206 Partial Content",
        data,
        f"Content-Range: bytes {start}-{stop - 1}/{size}",
        'ETag: "an-etag"',
        "Last-Modified: Sun, 22 Nov 2026 10:00:00 GMT",
        missing=missing,
    )


def closed(connection: socket.socket) -> bool:
    """No response: the connection ends."""
    return False


def stalled(connection: socket.socket) -> bool:
    """No response, until the client gives up."""
    with suppress(OSError):
        connection.recv(1)
    return False


def trickling(connection: socket.socket) -> bool:
    """A byte of the response now and then, until the client gives up."""
    with suppress(OSError):
        connection.sendall(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 1000\r\n\r\n")
        while True:
            time.sleep(0.1)
            connection.sendall(b"x")
    return False


def nonsense(connection: socket.socket) -> bool:
    """A response that is not HTTP."""
    connection.sendall(b"\0nonsense\r\n\r\n")
    return False


class FaultyS3:
    """Gives `answers` in turn, the last one again and again.

    Attributes
    ----------
    host
        Host and port.
    requests
        The first line of each request.
    heads
        The header of each request, in lower case.
    connections
        How many were made.
    """

    def __init__(self, listener: socket.socket, responses: Sequence[Answer]) -> None:
        self.requests: list[str] = []
        self.heads: list[str] = []
        self.connections = 0
        self.host = f"127.0.0.1:{listener.getsockname()[1]}"
        self._listener, self._answers = listener, list(responses)
        self._lock = threading.Lock()

    def serve(self, context: ssl.SSLContext | None) -> None:
        """Accept connections until the listener is closed."""
        with suppress(OSError):
            while True:
                connection = self._listener.accept()[0]
                self.connections += 1
                threading.Thread(
                    target=self._answer, args=(connection, context), daemon=True
                ).start()

    def _answer(self, connection: socket.socket, context: ssl.SSLContext | None) -> None:
        with suppress(OSError), connection:
            if context:
                connection = context.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as lines:
                while line := lines.readline():
                    self.requests.append(line.decode().strip())
                    head = list(iter(lambda: lines.readline().strip().lower().decode(), ""))
                    self.heads.append("\n".join(head))
                    for field in head:
                        if field.startswith("content-length:"):
                            lines.read(int(field.partition(":")[2]))
                    with self._lock:
                        act = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                    if not act(connection):
                        connection.shutdown(socket.SHUT_RDWR)
                        return


@contextmanager
def faulty_s3(*answers: Answer, context: ssl.SSLContext | None = None) -> Iterator[FaultyS3]:
    """A server that runs while the block does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = FaultyS3(listener, answers)
        threading.Thread(target=server.serve, args=(context,), daemon=True).start()
        yield server
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
