"""What one client may hold of the read service: slots, bytes, memory, time."""

import gzip
import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from stampede.alerts.columns import KINDS
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from tests.support.alerts.fits_files import fits_of, source, ztf
from tests.support.read.read_service import cutout, fill, point, serving

CUTOUTS = "/v1/cutouts"
N = 4_000
ALL = "\n".join(str(i) for i in range(1, N + 1)).encode()


@pytest.fixture(scope="module")
def large() -> MemoryObjects:
    """Cutouts of `N` alerts: about 24 MB."""
    objects, noise = MemoryObjects(), ztf(source(size=24))
    for start in range(0, N, 500):
        alerts = range(start + 1, start + 501)
        rows = [cutout(i, "ztf", kind, f"Z{i}", 59000.0, noise) for i in alerts for kind in KINDS]
        points = [point(f"Z{i}", "ztf", i, 59000.0) for i in alerts]
        fill(objects, rows, points, Coverage.of({("ztf", 0): alerts}))
    return objects


@contextmanager
def begun(read, body: bytes, length: int | None = None, path: str = CUTOUTS, client: str = "x"):
    """A connection with a request for cutouts, of whose body perhaps only a part is sent."""
    address = urlsplit(read.url)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((address.hostname, address.port))
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length or len(body)}\r\n"
        connection.sendall(f"{head}X-Forwarded-For: {client}\r\n\r\n".encode() + body)
        connection.settimeout(60)
        yield connection


def post(read, body: bytes):
    return read(CUTOUTS, "POST", body, retries=False)


def answers(read, body: bytes, status: int, within: float) -> bool:
    """Whether a query is answered with this status within some seconds."""
    deadline = time.monotonic() + within
    while post(read, body).status != status:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def sip(connection: socket.socket, left: threading.Event) -> None:
    """Take 2 KB a second until the server breaks the connection."""
    while not left.wait(0.5) and connection.recv(1024):
        pass


def test_idle_clients_hold_no_slot(large):
    for read in serving(make_app(Settings(bulk_queries=2), large)):
        with ExitStack() as stack:
            for _ in range(16):
                stack.enter_context(begun(read, b"1\n", 1000))
            time.sleep(0.3)
            assert post(read, b"1").status == 200


def test_a_client_that_takes_nothing_is_dropped(large):
    settings = Settings(bulk_queries=1, client_seconds=1.0)
    for read in serving(make_app(settings, large)):
        with begun(read, ALL):
            assert answers(read, b"1", 429, within=10)
            assert answers(read, b"1", 200, within=60)
        assert b'stampede_clients_dropped_total{part="answer"}' in read("/metrics").data


def test_a_client_that_takes_little_is_dropped(large):
    settings = Settings(bulk_queries=1, client_seconds=1.0)
    for read in serving(make_app(settings, large)):
        with begun(read, ALL) as connection:
            assert answers(read, b"1", 429, within=10)
            left = threading.Event()

            sipping = threading.Thread(target=sip, args=(connection, left), daemon=True)
            sipping.start()
            try:
                assert answers(read, b"1", 200, within=60)
            finally:
                left.set()
                sipping.join()


def test_a_slow_but_steady_client_gets_everything(large):
    settings = Settings(bulk_queries=1, client_seconds=1.0)
    for read in serving(make_app(settings, large)):
        with begun(read, b"\n".join(ALL.split()[:40])) as connection:
            got = b""
            while part := connection.recv(16 << 10):
                got += part
                time.sleep(0.02)
                if got.endswith(b"0\r\n\r\n"):
                    break
        assert b"missing.json" in got[-4096:]


LIMITED = Settings(bulk_queries=4, limit_clients=True, trusted_proxies="127.0.0.1")


def ask(read, client: str) -> Any:
    return read(CUTOUTS, "POST", b"1", headers={"X-Forwarded-For": client})


def begin_two(stack: ExitStack, read, client: str) -> None:
    for _ in range(2):
        connection = stack.enter_context(begun(read, ALL, client=client))
        assert connection.recv(12) == b"HTTP/1.1 200"  # it has its slot


def test_one_client_never_has_all_slots(large):
    for read in serving(make_app(LIMITED, large)):
        with ExitStack() as stack:
            begin_two(stack, read, "192.0.2.1")
            refused = ask(read, "192.0.2.1")
            assert refused.status == 429
            assert int(refused.headers["retry-after"]) > 0
            assert "2 large queries of this client" in refused.json()["detail"]
            assert ask(read, "192.0.2.2").status == 200
            begin_two(stack, read, "192.0.2.2")
            assert "4 large queries are running" in ask(read, "192.0.2.3").json()["detail"]
        deadline = time.monotonic() + 10
        while ask(read, "192.0.2.1").status != 200:
            assert time.monotonic() < deadline
            time.sleep(1)  # as often as the rate of a client allows


def test_bytes_of_unfinished_bodies_are_bounded(large):
    for read in serving(make_app(Settings(bulk_bytes=2000), large)):
        with begun(read, b"1\n" * 900, 5000):
            assert answers(read, b"1\n" * 400, 429, within=10)
            refused = post(read, b"1\n" * 400)
            assert refused.headers["retry-after"]
            assert post(read, b"1").status == 200
        assert answers(read, b"1\n" * 900, 200, within=10)


def test_a_body_that_says_it_is_too_large_is_refused_unread(large):
    for read in serving(make_app(Settings(bulk_ids=10), large)):
        with begun(read, b"1", 10_000_000) as connection:
            assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


HOSTILE = {
    "a million ids, none of them stored": (
        lambda: json.dumps({"ids": [str(10**18 + i) for i in range(1_000_000)]}).encode(),
        200,
        300,
    ),
    "empty objects": (lambda: b'{"ids": [' + b"{}," * 22_000_000 + b"1]}", 413, 300),
    "zeros": (lambda: b'{"ids": [' + b"0," * 33_000_000 + b"1]}", 413, 300),
    "one long string": (lambda: b'{"ids": ["' + b"a" * 67_000_000 + b'"]}', 400, 300),
    "wide characters": (
        lambda: '{"ids": ["\U0001f600'.encode() + b"a" * 67_000_000 + b'"]}',
        400,
        300,
    ),
}


@pytest.mark.integration
@pytest.mark.parametrize(("make", "status", "most"), HOSTILE.values(), ids=HOSTILE)
def test_memory_stays_bounded_whatever_the_body(tmp_path, make, status, most):
    """`most` is in MB above an idle server; the pod of `bulk` has 2 GiB, that of `read` 1 GiB."""
    body = make()
    with serve_read(tmp_path) as (process, address):
        idle = peak(process.pid)
        connection = HTTPConnection(*address, timeout=200)
        connection.request("POST", CUTOUTS, body)
        got = connection.getresponse()
        while got.read(1 << 20):
            pass
        assert got.status == status
        assert peak(process.pid) - idle < most
        connection.close()


@contextmanager
def serve_read(root):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        environment = {
            "STAMPEDE_STORE": f"file://{root}",
            "STAMPEDE_SOCKET": str(listening.fileno()),
            "PYTHONPATH": ":".join(sys.path),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "stampede", "serve", "read"],
            env=environment,
            pass_fds=[listening.fileno()],
        )
        try:
            address = listening.getsockname()
            connection = HTTPConnection(*address, timeout=60)
            connection.request("GET", "/health/liveness")
            assert connection.getresponse().read()
            connection.close()
            yield process, address
        finally:
            process.terminate()
            process.wait(60)


def peak(pid: int) -> float:
    """The most memory that a process has held, in MB."""
    with open(f"/proc/{pid}/status") as status:
        (line,) = (line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


def fits(width: int, height: int) -> bytes:
    """A gzipped FITS file of zeros."""
    cards = [
        f"SIMPLE  = {'T':>20}",
        f"BITPIX  = {8:>20}",
        f"NAXIS   = {2:>20}",
        f"NAXIS1  = {width:>20}",
        f"NAXIS2  = {height:>20}",
        "END",
    ]
    head = "".join(card.ljust(80) for card in cards).ljust(2880).encode()
    return gzip.compress(head + bytes(-(-width * height // 2880) * 2880))


SHAPES = {"square": (8000, 8000), "thin": (1, 60_000_000), "smaller": (3000, 3000)}


@pytest.mark.integration
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_an_image_of_too_many_pixels_is_a_problem_and_takes_no_memory(tmp_path, shape):
    """64 KB stored as an image can be gigabytes as floats."""
    rows = [cutout(1, "ztf", "science", "Z1", 59000.0, fits(*shape))]
    points = [point("Z1", "ztf", 1, 59000.0)]
    fill(DirectoryObjects(tmp_path), rows, points, Coverage.of({("ztf", 0): [1]}))
    with serve_read(tmp_path) as (process, address):
        connection = HTTPConnection(*address, timeout=60)
        idle = peak(process.pid)
        for query in ("format=png", "format=npy", "format=png&size=1024"):
            connection.request("GET", f"/v1/alerts/1/cutouts/science?{query}")
            got = connection.getresponse()
            problem = json.loads(got.read())
            assert (got.status, problem["title"]) == (422, "Bad image")
            assert "more than" in problem["detail"] or "pixels" in problem["detail"]
        assert peak(process.pid) - idle < 150
        connection.close()


@pytest.mark.integration
def test_many_images_that_unpack_to_megabytes_take_little_memory(tmp_path):
    """A pack of 60 KB with 140 MB of zeros: one page is unpacked at a time."""
    rows = [
        cutout(n, "ztf", kind, f"Z{n}", 59000.0, fits_of(1000, 1000, 32))
        for n in range(1, 13)
        for kind in KINDS
    ]
    points = [point("Z1", "ztf", 1, 59000.0)]
    fill(DirectoryObjects(tmp_path), rows, points, Coverage.of({("ztf", 0): [1]}))
    with serve_read(tmp_path) as (process, address):
        connection = HTTPConnection(*address, timeout=60)
        idle = peak(process.pid)
        connection.request("POST", CUTOUTS, "\n".join(map(str, range(1, 13))))
        got = connection.getresponse()
        assert got.status == 200
        assert len(got.read()) < 1_000_000
        assert peak(process.pid) - idle < 120
        connection.close()
