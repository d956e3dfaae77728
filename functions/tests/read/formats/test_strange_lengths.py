"""A process that responses everybody outlives every length of text, whatever the format."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pytest
import urllib3

from stampede.alerts.columns import DETECTION
from stampede.read.formats.light_curves import FORMATS
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from stampede_local.ports import free_port
from stampede_local.process import Process, wait_until
from stampede_simulator.simulator import Fields, Mix, Simulator
from tests.support.alerts.batch_decoders import make_batch_decoder

pytestmark = pytest.mark.integration
CHECKED = Path(__file__).parents[4] / "tools" / "checked"
CURVES = 600
REQUESTS = [
    f"/v1/objects/strange{number}/lightcurve?format={name}&magnitudes={more}"
    for number in range(CURVES)
    for name in FORMATS
    for more in ("false", "true")
]


def curves(folder: Path) -> pa.Table:
    """Simulated light curves, each with one text of another length."""
    alerts = [
        alert.body for alert in Simulator(1, Fields(objects=20), Mix(lsst_share=0.3)).alerts(100)
    ]
    rows = make_batch_decoder(folder, 70_000.0).detections(alerts).rows.to_pylist()
    rows.sort(key=itemgetter("object_id"))
    simulated = [list(points) for _, points in groupby(rows, itemgetter("object_id"))]
    points: list[dict] = []
    for number in range(CURVES):
        curve = [
            {**point, "object_id": f"strange{number}", "withdrawn": False}
            for point in simulated[number % len(simulated)]
        ]
        curve[0]["procstatus"] = "5" * number
        points += curve
    return pa.Table.from_pylist(points, DETECTION)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, str]]:
    """`serve read` over such light curves, under a checking allocator."""
    folder = tmp_path_factory.mktemp("strange")
    store = folder / "store"
    store.mkdir()
    Table(DirectoryObjects(store), DETECTIONS).append(curves(folder), Coverage())
    port = free_port()
    environment = {"STAMPEDE_STORE": store.as_uri(), "STAMPEDE_PORT": str(port)}
    process = Process(
        "read",
        [str(CHECKED), sys.executable, "-m", "stampede", "serve", "read"],
        folder / "log",
        environment,
    )
    process.start()
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(partial(ready, url), process)
        yield process, url
    finally:
        process.stop()


def ready(url: str) -> bool:
    try:
        return urllib3.request("GET", f"{url}/health/readiness", retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def test_it_lives_through_every_length_of_text_in_every_format(
    served: tuple[Process, str],
) -> None:
    process, url = served
    pool = urllib3.PoolManager(maxsize=8, retries=False, timeout=60)

    def status(path: str) -> int:
        try:
            return pool.request("GET", url + path).status
        except urllib3.exceptions.HTTPError:
            return 0

    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(status, REQUESTS))
    unanswered = [path for path, got in zip(REQUESTS, statuses, strict=True) if got != 200]
    assert process.status is None, f"{process.status}, {len(unanswered)}: {process.log.read_text()}"
    assert (len(statuses), unanswered) == (6_000, [])
