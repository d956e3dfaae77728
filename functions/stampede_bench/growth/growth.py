"""What a table costs as it grows: look-ups, listing, memory, start-up, bytes rewritten.

It writes the runs that compaction leaves after a number of alerts (see `synthetic`) into a real
Ceph. Then a new process reads them as `read` does, and `read` itself is started with the largest
table (see `starts`). At 10^9 alerts the parts are made up and share the bytes of a few real
ones (see `parts`). `stampede bench starts` is about 3 x 10^10 (see `decade`).
docs/scale.md extends the model, which is compared with each figure here, to ten years.
"""

import math
import multiprocessing
import random
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.store.compaction.compact import Policy, compact
from stampede.store.objects.memory import MemoryObjects
from stampede.store.runs.run_name import prefix
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, TABLES, TableSpec
from stampede.store.tables.table import Table
from stampede_bench.figures import Bound, Context, Figure, Rival, percentile
from stampede_bench.growth.large import large
from stampede_bench.growth.lookups import in_turn, keep_indexes_only, lookups, resident
from stampede_bench.growth.nights import nights
from stampede_bench.growth.starts import real_alert, starts
from stampede_bench.instruments import synthetic
from stampede_bench.instruments.bucket import open_bucket
from stampede_bench.instruments.counting_store import CountingStore
from stampede_bench.instruments.servers import servers
from stampede_bench.instruments.synthetic import FLUSH, random_id

ALERTS = ((10**5, 10**5), (10**6, 10**6), (10**7, 3 * 10**6))  # thorough, quick
LOOKUP = Bound("<=", 1.3, ratio=True)
# Between the smallest table and the largest there is one with more runs than either.
BETWEEN = Bound("<=", 2.0, ratio=True)
REQUESTS = Bound("<=", 6.0)
FIRST = 30  # look-ups that are the first of a process
MEMORY = Bound("<=", 512.0)  # MB


class ProbeResult(NamedTuple):
    """The measurements of a new process, see `probe`."""

    seconds: float  # until the table is ready
    listing: float  # seconds of another listing
    cold: list[float]  # milliseconds of each look-up that finds no rows in memory
    smallest: list[float]  # of each in the smallest table, in turn with those
    requests: float  # per look-up
    read: float  # KB per look-up
    first: list[float]  # milliseconds of each look-up that is the first after a start
    first_requests: float  # per such look-up
    first_read: float  # KB per such look-up
    runs: int
    rows: int
    imported: float  # MB of memory before the table
    memory: float  # MB afterwards


def measure(context: Context) -> Iterator[Figure]:
    """Tables of three sizes, a start and look-ups at 10^9 alerts, a topic a night, compaction."""
    with servers(context, kafka=False) as running:
        sizes = [context.scaled(*alerts, least=2 * FLUSH) for alerts in ALERTS]
        smallest: tuple[Settings, int] | None = None
        for alerts in sizes:
            settings = running.settings(f"bench-growth-{alerts}")
            for spec in (CUTOUTS, DETECTIONS):
                context.progress(f"{spec.name} of {alerts:,} alerts")
                bucket = open_bucket(settings)
                real = real_alert(bucket, alerts) if spec is CUTOUTS else None
                stored = synthetic.fill(
                    bucket, spec, alerts, settings.fanout, settings.run_rows, real
                )
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
                    count = context.scaled(200, 100, least=10)
                    context.progress("  look-ups")
                    found = other.submit(
                        probe, spec.name, settings, alerts, count, smallest
                    ).result()
                yield from figures(spec, alerts, found, stored, settings.fanout)
            smallest = smallest or (settings, alerts)
        context.progress("first answers")
        yield from starts(context, settings, alerts)
        settings = running.settings("bench-growth-large")
        alerts = context.scaled(10**9, 10**9, least=10**7)
        rows = context.scaled(settings.run_rows, settings.run_rows, least=50_000)
        for spec in (CUTOUTS, DETECTIONS):
            context.progress(f"{spec.name} of {alerts:,} alerts")
            count = context.scaled(100, 60, least=10)
            yield from large(settings, spec, alerts, rows, count)
        years = (running.settings(f"bench-growth-{name}") for name in ("year", "decade"))
        yield from nights(context, *years)
    context.progress("appending and merging, level by level")
    yield from rewritten(context)


def figures(
    spec: TableSpec, alerts: int, found: ProbeResult, stored: int, fanout: int
) -> Iterator[Figure]:
    """The figures of one table."""
    subject = f"{spec.name} of {alerts:,} alerts, {found.rows:,} rows"
    p50 = percentile(found.cold, 50)
    largest, smallest = alerts >= ALERTS[-1][0], None
    if found.smallest:  # empty of the smallest table itself
        smallest = Rival("in the smallest table", percentile(found.smallest, 50))
    bounds = (None, None) if smallest is None else (LOOKUP, None) if largest else (BETWEEN, LOOKUP)
    requirement, target = bounds
    yield Figure(
        subject, "look-up of a random id, p50", p50, "ms", smallest, requirement, None, target
    )
    yield Figure(subject, "look-up of a random id, p99", percentile(found.cold, 99), "ms")
    rival = Rival("model: the runs that have it", synthetic.runs_with_an_id(spec, alerts, fanout))
    requirement = REQUESTS if largest else None
    yield Figure(subject, "requests of a look-up", found.requests, "GET", rival, requirement)
    yield Figure(subject, "read by a look-up", found.read, "KB")
    first_p50 = percentile(found.first, 50)
    yield Figure(subject, "first look-up after a start, p50", first_p50, "ms")
    yield Figure(
        subject, "requests of a first look-up", found.first_requests, "GET", None, requirement
    )
    yield Figure(subject, "read by a first look-up", found.first_read, "KB")
    model = Rival("model", runs_of(alerts, fanout))
    yield Figure(subject, "runs", found.runs, "runs", model)
    yield Figure(subject, "listing again", 1e3 * found.listing, "ms")
    yield Figure(subject, "start-up, until it can be asked", 1e3 * found.seconds, "ms")
    imported = Rival("with nothing but its imports", found.imported)
    yield Figure(subject, "memory after those look-ups", found.memory, "MB", imported, MEMORY)
    yield Figure(subject, "stored", stored / alerts, "bytes/alert")


def probe(
    name: str,
    settings: Settings,
    alerts: int,
    count: int,
    smallest: tuple[Settings, int] | None,
) -> ProbeResult:
    """Look up random ids. It runs in a process of its own, to measure that process's memory.

    `smallest` are the settings and the alerts of the smallest table; None if this is that one.
    """
    spec, imported = TABLES[name], resident()
    bucket = CountingStore(open_bucket(settings))
    begin = time.perf_counter()
    table = Table(bucket, spec, settings.cache_bytes // 5)  # its share of the cache in `read`
    table.refresh()
    seconds = time.perf_counter() - begin
    chance = random.Random(alerts)
    first = first_lookups(bucket, table, alerts, chance)
    usual = keep_indexes_only(table)
    bucket.clear()
    ids = [random_id(spec, alerts, chance) for _ in range(count)]
    beside: list[float] = []
    if smallest is None:
        cold = lookups(table, ids)
    else:
        other, its_alerts = smallest
        its_ids = [random_id(spec, its_alerts, chance) for _ in range(count)]
        cold, beside = in_turn(table, ids, other, its_ids)
    requests, read = bucket.requests["get"] / count, bucket.bytes["get"] / count / 1e3
    table.reader.cache = usual
    lookups(table, [random_id(spec, alerts, chance) for _ in range(count)])
    begin = time.perf_counter()
    listed = sum(1 for _ in bucket.list(prefix(spec.name)))
    listing = time.perf_counter() - begin
    if listed != len(table.runs()):
        raise StampedeError(f"{listed} runs are listed, {len(table.runs())} are read")
    runs = len({part.name.run for part in table.runs()})
    rows = sum(part.rows for part in table.runs())
    return ProbeResult(
        seconds, listing, cold, beside, requests, read, *first, runs, rows, imported, resident()
    )


def first_lookups(
    bucket: CountingStore, like: Table, alerts: int, chance: random.Random
) -> tuple[list[float], float, float]:
    """Milliseconds of look-ups that are the first after a start, and requests and KB of each."""
    spent: list[float] = []
    requests = read = 0
    for _ in range(FIRST):
        table = Table(bucket, like.spec, like.reader.cache.limit)
        table.refresh()
        bucket.clear()
        spent += lookups(table, [random_id(like.spec, alerts, chance)])
        requests += bucket.requests["get"]
        read += bucket.bytes["get"]
        table.close()
    return spent, requests / FIRST, read / FIRST / 1e3


def runs_of(alerts: int, fanout: int) -> float:
    """Average number of runs of a table: on each level half of the runs of a merge."""
    return max(1.0, math.log(max(1, alerts / FLUSH), fanout) * (fanout - 1) / 2)


def rewritten(context: Context) -> Iterator[Figure]:
    """Append and compact many times; bytes written per byte appended.

    It compacts level by level, which is the worst case: a late compactor merges two levels at once.
    """
    fanout, subject = Settings().fanout, "bytes rewritten per byte stored"
    objects = CountingStore(MemoryObjects())
    table = Table(objects, DETECTIONS, threads=1)
    levels = 2 if context.scale == 1.0 and not context.quick else 1
    appended = compacted = 0
    now = datetime(2027, 1, 1, tzinfo=UTC)
    for flush in range(1, fanout ** (levels + 1) + 1):
        rows, coverage = synthetic.flush(flush, FLUSH, 10**6)
        before = objects.bytes["put"]
        table.append(rows, coverage)
        appended += objects.bytes["put"] - before
        if flush % fanout == 0:
            report = compact(table, now, Policy(fanout=fanout, grace=timedelta(0)))
            compacted += report.bytes_written
        level = math.log(flush, fanout)
        if level and round(level, 6).is_integer():
            model = Rival("model: once for each level", round(level))
            name = f"after {flush:,} flushes"
            yield Figure(subject, name, compacted / appended, "bytes/byte", model)
