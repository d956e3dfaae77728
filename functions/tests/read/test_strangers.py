"""What strangers may cost others: `stampede serve read` as a process, and strangers as others.

All figures of a test are of one run: a machine is busy at times.
"""

import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from stampede.alerts.columns import KINDS as IMAGES
from stampede.store.coverage import Coverage
from stampede.store.directory import DirectoryObjects
from tests.read.test_limits import serve_read
from tests.support.fits_files import source, ztf
from tests.support.read_service import cutout, fill, point
from tests.support.strangers import KINDS, strangers

pytestmark = pytest.mark.integration

Address = tuple[str, int]


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
        answer = connection.getresponse()
        answer.read()
        times.append(1000 * (time.perf_counter() - begin))
        assert answer.status == 200
    connection.close()
    return sorted(times)[len(times) // 2]


@pytest.mark.parametrize("kind", KINDS)
def test_strangers_slow_nobody_down(address: Address, kind: str) -> None:
    """Without bounds 4 of them make a small query 80 to 1,000 times as slow."""
    milliseconds(address, 0.5)
    found = {}
    for count in (0, 4, 1, 16):
        with strangers(address, count, kind):
            found[count] = milliseconds(address)
    print(kind, {count: f"{median:.2f} ms" for count, median in sorted(found.items())})
    assert max(found[1], found[4]) < 2 * found[0]
    assert found[16] < 4 * found[0]
