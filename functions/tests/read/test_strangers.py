"""What strangers may cost others: `stampede serve read` as a process, and strangers as others.

All figures of a test are of one run: a machine is busy at times.
"""

import gzip
import json
import os
import random
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path

import pyarrow as pa
import pytest

from stampede.alerts.columns import DETECTION
from stampede.alerts.columns import KINDS as IMAGES
from stampede.read import free_memory
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from tests.read.test_limits import peak, serve_read
from tests.support.alerts.fits_files import source, ztf
from tests.support.read.read_service import cutout, fill, point
from tests.support.read.strangers import KINDS, shape, strangers

pytestmark = pytest.mark.integration

Address = tuple[str, int]
TURNS = 9  # at most: after three of them one that holds is enough
SHAPES = int(os.environ.get("STRANGERS", "1"))
SEED = int(os.environ.get("SEED", "0")) or time.time_ns() % 1_000_000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    root: Path = tmp_path_factory.mktemp("store")
    rows = [cutout(1, "ztf", kind, "Z1", 59000.0, ztf(source())) for kind in IMAGES]
    points = [point("Z1", "ztf", 1, 59000.0)]
    fill(DirectoryObjects(root), rows, points, Coverage.of({("ztf", 0): [1]}))
    with serve_read(root) as (_, address):
        yield address


def milliseconds(address: Address, seconds: float = 2.0) -> float:
    """The median time of a small query of one client with a kept-alive connection."""
    times: list[float] = []
    connection = HTTPConnection(*address, timeout=60)
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times) < 5:
        begin = time.perf_counter()
        connection.request("GET", "/v1/alerts/1")
        response = connection.getresponse()
        response.read()
        times.append(1000 * (time.perf_counter() - begin))
        assert response.status == 200
    connection.close()
    return sorted(times)[len(times) // 2]


@pytest.mark.parametrize("kind", KINDS)
def test_strangers_slow_nobody_down(address: Address, kind: str) -> None:
    """Without bounds 4 of them make a small query 80 to 6,000 times as slow.

    The least of some turns counts: in the others the machine may have had other work. Alone it is
    1.3 times as slow at most; beside a test that uses both cores 3.4 times in all turns.
    """
    milliseconds(address, 0.5)
    most = dict.fromkeys((1, 4, 16), 4.0)
    turns: dict[int, list[float]] = {count: [] for count in (0, *most)}
    for turn in range(TURNS):
        for count, medians in turns.items():
            with strangers(address, count, kind):
                medians.append(milliseconds(address, 0.7))
        times = {count: min(turns[count]) / min(turns[0]) for count in most}
        if turn >= 2 and all(times[count] < most[count] for count in most):
            break
    print(kind, {count: f"{min(medians):.2f} ms" for count, medians in turns.items()})
    assert all(times[count] < most[count] for count in most), times


@pytest.mark.timeout(120 + 60 * SHAPES)
def test_strangers_of_any_shape_slow_nobody_down(address: Address) -> None:
    """Random sizes of chunks, extensions and headers."""
    milliseconds(address, 0.5)
    slow = []
    for number in range(SEED, SEED + SHAPES):
        kind = f"shape {number}"
        alone, beside = list[float](), list[float]()
        for turn in range(TURNS):
            alone.append(milliseconds(address, 0.5))
            with strangers(address, 4, kind):
                beside.append(milliseconds(address, 0.5))
            if turn >= 2 and min(beside) < 2 * min(alone):
                break
        part = shape(kind)[1].partition(b"\n1")[0][:50]
        print(
            f"again with SEED={number}: {min(alone):.2f} ms, with 4 {min(beside):.2f} ms, {part!r}"
        )
        if min(beside) > 2 * min(alone):
            slow.append(number)
    assert slow == []


MOST = 768  # MB; the limit of a pod of `read` is 1 GiB
CACHES = 256  # MB, the default of `cache_bytes`: what else this process would hold, after days
N, POINTS = 3000, 300
Q = 24  # queries, of which 16 have a slot
ALERTS = "\n".join(map(str, range(1, N + 1))).encode()
OBJECTS = "\n".join(f"Z{number:05}" for number in range(1, N + 1)).encode()
UNREAD = {
    "tar": ("/v1/cutouts", ALERTS),
    "arrow": ("/v1/lightcurves?format=arrow", OBJECTS),
    "csv": ("/v1/lightcurves?format=csv", OBJECTS),
    "parquet": ("/v1/lightcurves?format=parquet", OBJECTS),
}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cutouts of `N` alerts, 48 KB each, and light curves of `N` objects."""
    root: Path = tmp_path_factory.mktemp("large")
    objects, noise = DirectoryObjects(root), random.Random(1)
    images = [gzip.compress(noise.randbytes(16_000), 1, mtime=0) for _ in range(97)]
    curve = [point("", "ztf", number, 59000.0 + number) for number in range(POINTS)]
    curves = pa.concat_tables([pa.Table.from_pylist(curve, DETECTION)] * 500)
    for start in range(1, N + 1, 500):
        ids = range(start, start + 500)
        rows = [
            cutout(one, "ztf", kind, f"Z{one:05}", 59000.0, images[(3 * one + number) % 97])
            for one in ids
            for number, kind in enumerate(IMAGES)
        ]
        coverage = Coverage.of({("ztf", 0): ids})
        fill(objects, rows, [], coverage)
        names = pa.array([f"Z{one:05}" for one in ids for _ in range(POINTS)])
        place = curves.schema.get_field_index("object_id")
        field = curves.schema.field(place)
        Table(objects, DETECTIONS).append(curves.set_column(place, field, names), coverage)
    return root


def begin(address: Address, path: str, body: bytes) -> socket.socket:
    """A query of a client that will read nothing of its response."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(address)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def resident(pid: int) -> float:
    """Memory that a process has now, in MB."""
    with open(f"/proc/{pid}/status") as status:
        (line,) = (line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024 / 1e6


def settled(pid: int, pause: float = 1.5) -> float:
    """The memory of a process once it grows no more."""
    before, now = 0.0, resident(pid)
    while now > 1.01 * before:
        time.sleep(pause)
        before, now = now, resident(pid)
    return now


@pytest.mark.parametrize(("path", "body"), UNREAD.values(), ids=UNREAD)
def test_answers_that_nobody_reads_take_little_memory(large: Path, path: str, body: bytes) -> None:
    with serve_read(large) as (process, address):
        idle = resident(process.pid)
        held = [begin(address, path, body) for _ in range(Q)]
        settled(process.pid)
        most = peak(process.pid)
        for connection in held:
            connection.close()
        kept = idle + 0.8 * (most - idle)  # measured: 0.65 to 0.79
        for _ in range(4):  # it goes back step by step
            time.sleep(1.2 * free_memory.SECONDS)
            if (after := resident(process.pid)) < kept:
                break
    print(f"{path}: idle {idle:.0f}, most {most:.0f}, after the clients left {after:.0f} MB")
    assert most + CACHES < MOST
    assert after < kept


def test_two_queries_of_a_million_ids_at_once_take_little_memory(large: Path) -> None:
    body = json.dumps({"ids": [f"ZTF{number}" for number in range(10**9, 10**9 + 10**6)]}).encode()

    def ask(address: Address) -> int:
        connection = HTTPConnection(*address, timeout=100)
        connection.request("POST", "/v1/lightcurves", body)
        response = connection.getresponse()
        while response.read(1 << 20):
            pass
        connection.close()
        return response.status

    with serve_read(large) as (process, address), ThreadPoolExecutor(2) as pool:
        idle = resident(process.pid)
        assert [*pool.map(ask, [address, address])] == [200, 200]
        most = peak(process.pid)
    print(f"idle {idle:.0f}, most {most:.0f} MB")
    assert most + CACHES < MOST


def test_large_headers_of_many_connections_take_little_memory(large: Path) -> None:
    with serve_read(large) as (process, address), ExitStack() as stack:
        idle = resident(process.pid)
        for _ in range(300):
            connection = stack.enter_context(socket.create_connection(address))
            with suppress(ConnectionError):  # it may be cut while it sends
                connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 60_000)
        settled(process.pid)
        most = peak(process.pid)
    print(f"idle {idle:.0f}, most {most:.0f} MB")
    assert most - idle < 60
