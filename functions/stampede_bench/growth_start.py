"""The start of a process at 10^9 alerts: a real listing and a real checkpoint of made-up runs.

The objects of the runs are empty: a start does not read them.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from stampede.errors import StampedeError
from stampede.settings import Settings
from stampede.store.checkpoint import write_checkpoint
from stampede.store.coverage import Coverage
from stampede.store.objects import ObjectInfo
from stampede.store.runs import RunInfo, RunName, digest, prefix
from stampede.store.schema import TableSpec
from stampede.store.tables import Table
from stampede_bench.bucket import open_bucket
from stampede_bench.counting_store import CountingStore
from stampede_bench.figures import Figure, Must, percentile
from stampede_bench.synthetic import FLUSH, shape

PARTITIONS = 60
ALERTS_PER_HOLE = 10_000
TRIES = 5
NEVER = datetime.fromtimestamp(0, UTC)
MEGABYTES, SECONDS = Must("<=", 5.0), Must("<=", 2.0)


def start(
    settings: Settings, spec: TableSpec, rows_per_alert: int, alerts: int
) -> Iterator[Figure]:
    """What a start takes with one offset in `ALERTS_PER_HOLE` missing."""
    objects = CountingStore(open_bucket(settings))
    parts = list(made_up(spec, rows_per_alert, alerts, settings))
    for part in parts:
        objects.put(part.key, part.key.encode())
    listed = {info.key: info for info in objects.list(prefix(spec.name))}
    named = [replace(part, object=listed[part.key]) for part in parts]
    key, data = write_checkpoint(named, spec, 1)
    objects.put(key, memoryview(data))
    objects.clear()
    spent = []
    for _ in range(TRIES):
        begin = time.perf_counter()
        table = Table(objects, spec)
        table.refresh()
        spent.append(time.perf_counter() - begin)
        if table.coverage() != Coverage.union(part.coverage for part in parts):
            raise StampedeError(f"{spec.name} starts with another coverage")
    read, requests = objects.bytes["get"] / TRIES, objects.requests.total() / TRIES
    subject = f"start with {spec.name} of {alerts:,} alerts in {len(parts):,} parts"
    yield Figure(subject, "until it can be asked, p50", percentile(spent, 50), "s", None, SECONDS)
    yield Figure(subject, "read, besides the listing", read / 1e6, "MB", None, MEGABYTES)
    yield Figure(subject, "requests", requests, "requests")
    holes = sum(len(table.coverage().intervals(*of)) for of in table.coverage().partitions())
    yield Figure(subject, "intervals of offsets", holes, "intervals")


def made_up(
    spec: TableSpec, rows_per_alert: int, alerts: int, settings: Settings
) -> Iterator[RunInfo]:
    """The parts that compaction leaves after so many alerts."""
    for run in shape(alerts // FLUSH, settings.fanout):
        coverage = with_holes(run.first * FLUSH, (run.first + run.flushes) * FLUSH)
        rows = run.flushes * FLUSH * rows_per_alert
        count = max(1, rows // settings.run_rows)
        inputs = tuple(
            f"{run.level - 1:04}-{digest(spec.name, str(run), str(number))}"
            for number in range(settings.fanout if run.level else 0)
        )
        name = RunName(run.level, digest(spec.name, str(run)), 0, count)
        for number in range(count):
            part = replace(name, part=number)
            least = 10**17 + number * 10**9
            ends = least, least + 10**9 - 1
            first, last = ends if spec.leading == "alert_id" else map(str, ends)
            info = ObjectInfo(part.key(spec.name), 0, "", NEVER)
            yield RunInfo(part, info, inputs, coverage, rows // count, first, last, "00000000")


def with_holes(first: int, end: int) -> Coverage:
    """The offsets of these alerts, dealt to the partitions in turn, with holes at random places."""
    low, high = first // PARTITIONS, max(end // PARTITIONS, first // PARTITIONS + 1)
    spans = {}
    for partition in range(PARTITIONS):
        chance = np.random.default_rng([first, partition])
        count = (high - low) // ALERTS_PER_HOLE
        holes = np.unique(chance.integers(low, high, count))
        starts, ends = np.append(low, holes + 1), np.append(holes, high)
        spans["lsst-alerts@" + 22 * "A", partition] = np.stack([starts, ends], 1)[starts < ends]
    return Coverage(spans)
