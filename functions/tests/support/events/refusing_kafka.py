"""A listener that refuses each password in Kafka's protocol.

It answers three requests: which ones it knows, that it logs in by SCRAM-SHA-512, and that the login
failed. Kafka's protocol guide has the formats.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
UNSUPPORTED_VERSION, SASL_AUTHENTICATION_FAILED = 35, 58
# The versions of each request, as a Kafka of long ago had them: a client decides by these that it
# can log in.
KNOWN = (
    *((0, 3, 7), (1, 4, 11), (2, 1, 2), (3, 0, 4), (8, 1, 3), (9, 1, 3), (10, 0, 2), (11, 0, 3)),
    *((12, 0, 2), (13, 0, 1), (14, 0, 2)),
    *((SASL_HANDSHAKE, 1, 1), (API_VERSIONS, 0, 3), (SASL_AUTHENTICATE, 0, 1)),
)
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "night",
    "sasl.password": "expired",
}


@contextmanager
def refusing_kafka() -> Iterator[str]:
    """HOST:PORT of such a listener."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_accept, args=(server,), daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def _accept(server: socket.socket) -> None:
    with suppress(OSError):  # it is closed
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with suppress(OSError), connection, connection.makefile("rb") as requests:
        while request := _read(requests):
            number, response = request[4:8], _response(*struct.unpack(">hh", request[:4]))
            connection.sendall(struct.pack(">i", 4 + len(response)) + number + response)


def _read(requests: BinaryIO) -> bytes:
    length = requests.read(4)
    return requests.read(struct.unpack(">i", length)[0]) if len(length) == 4 else b""


def _response(request: int, version: int) -> bytes:
    if request == API_VERSIONS and version > 0:
        return struct.pack(">hi", UNSUPPORTED_VERSION, 0)
    if request == API_VERSIONS:
        known = b"".join(struct.pack(">hhh", *each) for each in KNOWN)
        return struct.pack(">hi", 0, len(KNOWN)) + known
    if request == SASL_HANDSHAKE:
        return struct.pack(">hi", 0, 1) + _text("SCRAM-SHA-512")
    session = struct.pack(">q", 0) if version else b""
    nothing = struct.pack(">i", 0)
    return struct.pack(">h", SASL_AUTHENTICATION_FAILED) + _text("invalid") + nothing + session


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
