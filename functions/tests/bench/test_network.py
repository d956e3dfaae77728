"""Benchmarks of what is between processes: a far site, any S3 endpoint, an outage."""

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stampede.settings import Settings
from stampede.store.conformance import CHECKS
from stampede.store.memory import MemoryObjects
from stampede_bench import stress
from stampede_bench.bucket import open_bucket
from stampede_bench.figures import Context
from stampede_bench.link import link
from tests.support.two_sites import environment

SIZE = 20 << 20


class Echo(socketserver.BaseRequestHandler):
    """Sends back what comes."""

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
    """Seconds until all of it has come back as it was."""
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
def test_a_link_delays_and_limits_nothing(echo: int, tmp_path: Path) -> None:
    """Twenty round trips' worth of bytes are under way at once; one after the other is slower."""
    data = bytes(range(256)) * (SIZE // 256)
    with (
        link(tmp_path, echo, 300) as port,
        socket.create_connection(("127.0.0.1", port)) as connection,
    ):
        # Timers may be a little early, and a busy machine late.
        assert answered(connection, b"a") > 0.59  # a handshake and a round trip
        each = [answered(connection, b"b") for _ in range(3)]
        assert 0.29 < min(each) < 0.6
        assert sum(each) > 0.89
        assert 0.29 < answered(connection, data) < 10


@pytest.mark.integration
def test_a_link_closes_when_one_end_does_and_loses_nothing(echo: int, tmp_path: Path) -> None:
    with (
        link(tmp_path, echo, 100) as port,
        socket.create_connection(("127.0.0.1", port)) as connection,
    ):
        connection.sendall(b"last words")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b"last words"
        assert connection.recv(100) == b""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_what_is_asked_of_an_endpoint_is_what_memory_does(check) -> None:
    check(MemoryObjects(), "a/")


class Wrong(MemoryObjects):
    """Says every object is one byte shorter than it is."""

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return super().get(key, start, length)[:-1]


def test_an_endpoint_that_does_otherwise_is_told_so() -> None:
    context = Context(True, Path(), lambda _: None)
    found = {figure.name: figure.met for figure in stress.works(context, Wrong())}
    assert not found["An object reads back as it was written, whatever its key and bytes"]
    assert not found["A ranged GET returns those bytes, and none beyond the end"]
    assert found["The etag of a PUT is the MD5 of its bytes"]


def test_stress_counts_every_request_and_leaves_nothing(
    measure, bucket: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(bucket).items():
        monkeypatch.setenv(f"STAMPEDE_{name}", value)
    monkeypatch.setattr(stress, "CLIENTS", (1, 20))
    found = measure("stress")
    assert {figure.met for (subject, _), figure in found.items() if subject == "what works"} == {
        True
    }
    many = next(subject for subject, name in found if name == "stored")
    assert found[many, "stored"].value == 60
    assert found[many, "rate of the last 20"].rival.value > 0
    shares = [figure.value for (of, name), figure in found.items() if name.startswith("took")]
    assert sum(shares) == pytest.approx(100)
    for at_once in ("1", "20"):
        for what in ("PUT", "GET"):
            subject = f"{what} of 15,000 bytes, {at_once} at once"
            assert found[subject, "failed"].value == 0
            assert found[subject, "p100"].value >= found[subject, "p50"].value > 0
    assert not list(open_bucket(bucket).list(""))


@pytest.mark.usefixtures("ceph_packages")
def test_replicate_has_a_ratio_for_each_way(measure) -> None:
    found = measure("replicate")
    assert {subject for subject, _ in found} == {
        f"{direction}, {scheme}" for direction in ("push", "pull") for scheme in ("HTTP", "HTTPS")
    }
    for subject in {subject for subject, _ in found}:
        assert found[subject, "150 ms"].must is not None
        assert found[subject, "150 ms"].ratio > 0


@pytest.mark.usefixtures("ceph_packages", "kafka_packages")
def test_recover_stores_all_and_refuses_nothing(measure) -> None:
    found = {name: figure for (_, name), figure in measure("recover").items()}
    assert found["drained"].value > 0
    assert found["drained"].rival.value == 300
    assert found["all in both tables, none a dead letter"].value == 60
