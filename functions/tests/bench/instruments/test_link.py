import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stampede_bench.instruments.link import link

SIZE = 20 << 20


class Echo(socketserver.BaseRequestHandler):
    """Sends back the bytes it receives."""

    def handle(self) -> None:
        while data := self.request.recv(1 << 16):
            self.request.sendall(data)


@pytest.fixture
def echo() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def answered(connection: socket.socket, data: bytes) -> float:
    """Seconds until all bytes have come back unchanged."""
    begin = time.monotonic()
    sender = threading.Thread(target=connection.sendall, args=[data], daemon=True)
    sender.start()
    got = bytearray()
    while len(got) < len(data):
        got += connection.recv(1 << 20)
    sender.join()
    assert got == data
    return time.monotonic() - begin


@pytest.mark.integration
def test_a_link_delays_but_does_not_limit_the_rate(echo: int, tmp_path: Path) -> None:
    """Twenty round trips' worth of bytes are in flight at once; one at a time would be slower."""
    data = bytes(range(256)) * (SIZE // 256)
    with (
        link(tmp_path, echo, 300) as port,
        socket.create_connection(("127.0.0.1", port)) as connection,
    ):
        # Timers may fire slightly early, and a busy machine is late.
        assert answered(connection, b"a") > 0.59  # a handshake and a round trip
        each = [answered(connection, b"b") for _ in range(3)]
        assert 0.29 < min(each) < 0.6
        assert sum(each) > 0.89
        assert 0.29 < answered(connection, data) < 10


@pytest.mark.integration
def test_a_link_closes_with_one_end_and_loses_nothing(echo: int, tmp_path: Path) -> None:
    with (
        link(tmp_path, echo, 100) as port,
        socket.create_connection(("127.0.0.1", port)) as connection,
    ):
        connection.sendall(b"last words")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b"last words"
        assert connection.recv(100) == b""


@pytest.mark.integration
def test_a_link_waits_for_a_slow_reader(echo: int, tmp_path: Path) -> None:
    """More is under way than the sockets hold."""
    data = bytes(range(256)) * (4 * SIZE // 256)
    with (
        link(tmp_path, echo, 20) as port,
        socket.create_connection(("127.0.0.1", port)) as connection,
    ):
        sender = threading.Thread(target=connection.sendall, args=[data], daemon=True)
        sender.start()
        time.sleep(1)
        got = bytearray()
        while len(got) < len(data) and (part := connection.recv(1 << 18)):
            got += part
            time.sleep(0.001)
        sender.join()
        assert got == data


@pytest.mark.integration
def test_a_link_outlives_a_connection_that_is_reset(echo: int, tmp_path: Path) -> None:
    with link(tmp_path, echo, 20) as port:
        for _ in range(3):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(bytes(SIZE // 8))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            assert answered(connection, b"c" * 1000) < 5
