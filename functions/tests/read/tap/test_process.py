"""Hostile queries in ADQL end in bounded time and memory, and others go on."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import psutil
import pytest

from stampede.config.settings import Settings
from stampede.read.app import make_app
from tests.read.tap.test_tap import name, sample
from tests.support.children import Children
from tests.support.read.read_service import Reader, serving

SECONDS = 2.0
MIB = 1 << 20
MOST = 256 * MIB

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux has /proc"),
]


@pytest.fixture(scope="module")
def queries() -> Children:
    """The processes of queries."""
    return Children()


@pytest.fixture(scope="module")
def read(queries: Children) -> Iterator[Reader]:
    settings = Settings(tap_seconds=SECONDS, tap_memory=MOST, tap_queries=1)
    yield from serving(make_app(settings, sample()))


def ask(read: Reader, query: str) -> tuple[int, str]:
    body = urlencode({"LANG": "ADQL", "QUERY": query}).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    response = read("/tap/sync", "POST", body, headers=headers)
    return response.status, response.data.decode()


CROSS = ", ".join(f"detections AS d{number}" for number in range(5))
DOUBLED = "object_id"
for _ in range(18):
    DOUBLED = f"({DOUBLED} || {DOUBLED})"
NESTED = "SELECT object_id AS a FROM objects"
for _ in range(18):
    NESTED = f"SELECT a || a || a || a AS a FROM ({NESTED}) AS t"
HOSTILE = {
    "cross join": f"SELECT COUNT(*) FROM {CROSS}",
    "cross join of rows": f"SELECT d0.ra FROM {CROSS} WHERE d0.ra + d1.ra + d2.ra + d3.ra > 1e9",
    "sort of a cross join": "SELECT a.* FROM detections a, detections b ORDER BY b.flux, a.flux",
    "distinct": "SELECT DISTINCT a.source_id * 3000000 + b.source_id FROM detections a, "
    "detections b",
    "long texts": f"SELECT {DOUBLED} FROM objects",
    "longer texts": NESTED,
    "many keys": f"SELECT ra FROM objects WHERE object_id IN ({','.join(['1'] * 100_000)})",
    "many conditions": "SELECT ra FROM objects WHERE " + " OR ".join(["ra < dec"] * 5_000),
    "deep": "SELECT " + "ABS(" * 50 + "1" + ")" * 50 + " FROM objects",
    "deeper": "SELECT " + "ABS(" * 5_000 + "1" + ")" * 5_000 + " FROM objects",
    "long sum": "SELECT " + "+".join(["ra"] * 3_000) + " FROM objects",
    "patterns": "SELECT ra FROM objects WHERE " + f"object_id LIKE '{'%a' * 200}'",
    "powers": "SELECT POWER(POWER(9, 99), 99) FROM objects",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_query_ends(queries: Children, read: Reader, kind: str) -> None:
    ask(read, "SELECT TOP 1 ra FROM objects")  # the process is there
    watched = Peak(queries)
    begin = time.monotonic()
    with watched:
        status, text = ask(read, HOSTILE[kind])
    taken = time.monotonic() - begin
    print(kind, status, f"{taken:.2f} s {watched.peak / MIB:.0f} MB", text[-300:])
    assert status in (200, 400), text[-500:]
    assert taken < SECONDS + 6
    assert 0 < watched.peak < MOST + 250 * MIB  # with what the process takes at its start
    assert ask(read, f"SELECT ra FROM objects WHERE object_id='{name(1)}'")[0] == 200


def test_more_queries_than_may_wait_are_refused(read: Reader) -> None:
    with ThreadPoolExecutor(8) as pool:
        query = HOSTILE["cross join of rows"]
        answers = [pool.submit(ask, Reader(read.url), query) for _ in range(8)]
        found = sorted(answer.result()[0] for answer in answers)
    assert found == [400] * 4 + [429] * 4
    assert ask(read, f"SELECT ra FROM objects WHERE object_id='{name(1)}'")[0] == 200


def test_a_reader_that_takes_nothing_holds_no_process(read: Reader) -> None:
    """Its rows are read before they are sent."""
    query = "SELECT a.*, b.* FROM detections a, detections b"
    host, port = read.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as slow:
        path = "/tap/sync?" + urlencode({"LANG": "ADQL", "QUERY": query, "MAXREC": "20000"})
        slow.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert slow.recv(12) == b"HTTP/1.1 200"
        assert ask(read, "SELECT TOP 1 ra FROM objects")[0] == 200


def test_without_queries_the_service_says_where_they_are() -> None:
    settings = Settings(tap_queries=0, bulk_url="https://bulk.example")
    for none in serving(make_app(settings, sample())):
        status, text = ask(none, "SELECT TOP 1 ra FROM objects")
        assert status == 404
        assert "send them to https://bulk.example/tap" in text
        assert b"<available>false" in none("/tap/availability").data
        assert none("/tap/capabilities").status == 404


class Peak:
    """The most memory that one of `processes` took."""

    def __init__(self, processes: Children) -> None:
        self.peak, self._processes = 0, processes

    def __enter__(self) -> "Peak":
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self._look()

    def _look(self) -> None:
        try:
            taken = [each.memory_info().rss for each in self._processes()]
            self.peak = max([self.peak, *taken])
        except psutil.NoSuchProcess:
            pass
