"""Sources and functions scale; at the second site, large queries do not slow small ones."""

import json
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from e2e.background import repeat
from e2e.commands import until
from e2e.http import get
from e2e.on_cluster.kubernetes import Cluster
from e2e.on_cluster.release import Release
from stampede_bench.figures import percentile
from stampede_simulator.simulator import Mix, Simulator
from tests.support.store import stored_alerts

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

SOURCE = "app.kubernetes.io/component=source,stampede/source=alerts"
SEED = 61
LARGE = 33_334  # alerts: 100,002 cutouts
FIRST = 9_000_000_000  # their first id
# Store cutouts of `LARGE` alerts, 5 KB each, 500 alerts per pack. The images are random bytes.
FILL = f"""
import gzip, random
import pyarrow as pa
from stampede.alerts.columns import CUTOUT, KINDS
from stampede.config.settings import Settings
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.packs.pack import write_pack
from stampede.store.runs.schema import CUTOUTS
from stampede.store.tables.table import Table
objects, none = open_objects(Settings()), Coverage.of({{}})
noise = random.Random(1)
images = [gzip.compress(noise.randbytes(5_000), 1, mtime=0) for _ in range(97)]
for start in range(0, {LARGE}, 500):
    rows = [
        dict(alert_id={FIRST} + n, survey="ztf", kind=kind, object_id=f"ZTF{{n}}", mjd=61000.0,
             band="r", ra=10.0, dec=-5.0, fits=images[(3 * n + k) % 97])
        for n in range(start, min(start + 500, {LARGE})) for k, kind in enumerate(KINDS)
    ]
    pack = write_pack(pa.Table.from_pylist(rows, CUTOUT), none)
    objects.put(pack.key, memoryview(pack.data))
    Table(objects, CUTOUTS).append(pack.locations, none)
"""


def min_scale(pods: int) -> dict[str, Any]:
    """The chart's value with which `compact` has at least so many pods."""
    return {"functions.compact.scaling.min-scale": pods}


def test_compact_sleeps_between_its_events(release: Release) -> None:
    """With the chart's own scaling: an event comes each minute, and its pod goes each time."""
    release.install(**min_scale(0))
    times: list[str] = []

    def came_and_went() -> bool:
        pods = {pod["metadata"]["name"] for pod in release.pods("compact")}
        if not times or (times[-1] == "up") != bool(pods):
            times.append("up" if pods else "down")
        return times.count("down") >= 2

    try:
        until(came_and_went, 420, 1)
    finally:
        release.install(**min_scale(1))


def test_sources_scale_and_change_while_alerts_arrive(release: Release) -> None:
    """1 -> 4 -> 1 pods of a source, with one more setting and without: no alert is lost."""

    def pods() -> list:
        return release.live_pods(SOURCE)

    def variables() -> set[str]:
        (container,) = pods()[0]["spec"]["containers"]
        return {each["name"] for each in container["env"]}

    scaled = Event()

    def send() -> int:
        """Send part after part until the sources have scaled; the number of parts."""
        for part in count(1):
            line = ("simulate", "--alerts", 100, "--seed", 100 * SEED + part, "--rate", 8)
            release.stampede(*line)
            if scaled.is_set():
                break
        return part

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        try:
            for number, in_flight in ((4, 200), (1, None)):
                release.install(
                    sources__alerts__replicas=number,
                    sources__alerts__settings__in_flight=in_flight,
                )
                until(lambda n=number: len(pods()) == n, 120, 1)
                names = variables()
                assert "STAMPEDE_SINKS" in names
                assert ("STAMPEDE_IN_FLIGHT" in names) == (in_flight is not None)
        finally:
            scaled.set()
        assert sending.result() > 1
    release.wait_until_stored(seconds=400)


@pytest.fixture(scope="module")
def second(cluster: Cluster, release: Release) -> Iterator[Release]:
    """A release with only `read` and `bulk`, at the second site."""
    release.wait_until_stored("--site", "replica", seconds=300)
    second = Release(cluster, "second", "values-second.yaml")
    second.install()
    yield second
    second.uninstall()


@pytest.fixture(scope="module")
def known(release: Release) -> list:
    simulator = Simulator(SEED + 1, mix=Mix(solar_system=0.05, null_cutouts=0.01))
    alerts = list(simulator.alerts(100))
    release.stampede("simulate", "--alerts", 100, "--seed", SEED + 1)
    release.wait_until_stored()
    release.wait_until_stored("--site", "replica", seconds=300)
    return alerts


def test_the_second_site_gives_the_same_answers(second: Release, known: list) -> None:
    ids, expected = [alert.alert_id for alert in known], stored_alerts.cutouts_of(known)
    stored = {}

    def complete() -> bool:  # a listing may be up to `refresh_seconds` old
        stored.update(stored_alerts.stored_cutouts(second.url("read"), ids))
        return len(stored) >= len(expected)

    until(complete, 30, 1)
    assert stored == expected


def test_large_queries_do_not_slow_small_ones(second: Release, known: list) -> None:
    """`bulk` scales out to send 100,000 items, and back to zero; `read` keeps answering."""
    second.python(FILL, seconds=400)
    ids = [str(FIRST + n) for n in range(LARGE)]
    alert = next(alert for alert in known if all(alert.fits.values()))
    url = f"{second.url('read')}/v1/alerts/{alert.alert_id}/cutouts/science"
    bulk = second.url("bulk")

    def large(_: int) -> tuple[int, float]:
        begin = time.monotonic()
        body = json.dumps({"ids": ids}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{bulk}/v1/cutouts?format=arrow", body, headers)
        with urllib.request.urlopen(request, timeout=300) as response:
            found = sum(
                batch.num_rows - batch.column("fits").null_count
                for batch in pa.ipc.open_stream(response)
            )
        return found, time.monotonic() - begin

    def small() -> None:
        assert get(url) == alert.fits["science"]

    small()
    until(lambda: not second.pods("bulk"), 180, 1)
    with repeat(small) as log, ThreadPoolExecutor(2) as pool:
        queries = [pool.submit(large, n) for n in range(2)]
        until(lambda: len(second.pods("bulk")) == 2, 120, 0.5)
        (one, one_seconds), (two, two_seconds) = (query.result() for query in queries)
    assert one == two == 3 * LARGE
    assert not log.errors
    print(f"{len(log.seconds)} small reads, p99 {percentile(log.seconds, 99):.3f} s,")
    print(f"beside large ones of {one_seconds:.1f} and {two_seconds:.1f} s")
    # If they waited for the large queries, there would be few, and each would take as long.
    assert len(log.seconds) > 20
    assert percentile(log.seconds, 50) < min(one_seconds, two_seconds) / 4
    assert len(second.pods("read")) == 1
    until(lambda: not second.pods("bulk"), 180, 1)


def test_uninstall_leaves_only_the_data(second: Release, release: Release) -> None:
    second.uninstall()
    until(lambda: not second.remaining(), 180, 2)
    release.wait_until_stored("--site", "replica")
    began = time.monotonic()
    second.install()
    print(f"installed again in {time.monotonic() - began:.0f} s")
    assert get(f"{second.url('read')}/v1/alerts/{FIRST}/cutouts/science")
