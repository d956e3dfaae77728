"""A table of 10^9 alerts: what a start and look-ups take, with made-up parts (`parts`)."""

import multiprocessing
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.run import RunInfo
from stampede.store.runs.run_name import prefix
from stampede.store.runs.schema import CUTOUTS, TABLES, TableSpec
from stampede.store.tables.checkpoint_files import put_checkpoint
from stampede.store.tables.table import Table
from stampede_bench.figures import Bound, Figure, Rival, percentile
from stampede_bench.growth.lookups import Indexes, lookups, resident
from stampede_bench.growth.parts import (
    SharedParts,
    SharedReader,
    Size,
    blocks_of,
    made_up,
    stand_ins,
)
from stampede_bench.instruments.bucket import open_bucket
from stampede_bench.instruments.synthetic import APART, FIRST_ALERT, FIRST_OBJECT

TRIES = 5
MEGABYTES, SECONDS, MEMORY = Bound("<=", 5.0), Bound("<=", 2.0), Bound("<=", 512.0)


class Found(NamedTuple):
    """The measurements of a new process."""

    starts: list[float]  # seconds until the table can be asked
    start_requests: float
    start_bytes: float
    lookups: list[float]  # milliseconds each
    requests: float  # per look-up
    read: float  # KB per look-up
    memory: float  # MB


def large(
    settings: Settings, spec: TableSpec, alerts: int, run_rows: int, count: int
) -> Iterator[Figure]:
    """What a start takes with one offset in 10,000 missing, and `count` look-ups after it."""
    size, bucket = Size(alerts, settings.fanout, run_rows), open_bucket(settings)
    ids = random_numbers(spec, size, count)
    by_level = stand_ins(bucket, spec, size, ids)
    parts = list(made_up(spec, size, by_level))
    by_key = {part.key: by_level[part.name.level] for part in parts if part.name.level in by_level}
    for part in parts:
        bucket.put(part.key, part.key.encode())
    listed = {info.key: info for info in SharedParts(bucket, by_key).list(prefix(spec.name))}
    named = [replace(part, object=listed[part.key]) for part in parts]
    put_checkpoint(bucket, spec, named)
    covered = Coverage.union(part.coverage for part in parts)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        found = other.submit(probe, settings, spec.name, by_key, covered, ids).result()
    subject = f"{spec.name} of {alerts:,} alerts in {len(parts):,} made-up parts"
    p50 = percentile(found.starts, 50)
    yield Figure(subject, "start, until it can be asked, p50", p50, "s", None, SECONDS)
    size_ = found.start_bytes / 1e6
    yield Figure(subject, "read by a start, besides the listing", size_, "MB", None, MEGABYTES)
    yield Figure(subject, "requests of a start", found.start_requests, "requests")
    holes = sum(len(covered.intervals(*of)) for of in covered.partitions())
    yield Figure(subject, "intervals of offsets", holes, "intervals")
    yield Figure(subject, "look-up of a random id, p50", percentile(found.lookups, 50), "ms")
    yield Figure(subject, "look-up of a random id, p99", percentile(found.lookups, 99), "ms")
    runs = 1.0 if spec is CUTOUTS else float(len(size.runs()))
    model = Rival("runs that may have rows of it", runs)
    yield Figure(
        subject, "requests of a look-up, those for indexes too", found.requests, "GET", model
    )
    yield Figure(subject, "read by a look-up", found.read, "KB")
    yield Figure(subject, "memory after those look-ups", found.memory, "MB", target=MEMORY)
    flushes = sum(run.flushes for run in size.runs())
    rewritten = sum(run.level * run.flushes for run in size.runs()) / flushes
    yield Figure(subject, "times that compaction has written a row, by the model", rewritten, "x")


def random_numbers(spec: TableSpec, size: Size, count: int) -> np.ndarray:
    """Numbers of random objects or alerts, distinct and ascending."""
    chance = np.random.default_rng(count)
    if spec is CUTOUTS:
        return np.unique(chance.choice(blocks_of(size), count))
    return np.unique(chance.integers(0, size.objects, count))


def probe(
    settings: Settings, name: str, by_key: Mapping[str, RunInfo], covered: Coverage, ids: np.ndarray
) -> Found:
    """Start and look up. It runs in a process of its own, to measure that process's memory."""
    spec = TABLES[name]
    store = SharedParts(open_bucket(settings), by_key)
    share = settings.cache_bytes // 5  # of a table in `read`
    starts = []
    for _ in range(TRIES):
        begin = time.perf_counter()
        table = Table(store, spec, share)
        table.refresh()
        starts.append(time.perf_counter() - begin)
        if table.coverage() != covered:
            raise StampedeError(f"{name} starts with another coverage")
    requests, read = store.requests.total() / TRIES, store.bytes["get"] / TRIES
    table.finder.reader = SharedReader(store, spec, share, by_key)
    table.reader.cache = Indexes(table.reader.cache)
    values = [
        FIRST_ALERT + APART * number if spec is CUTOUTS else str(FIRST_OBJECT + number)
        for number in np.random.default_rng(1).permutation(ids).tolist()
    ]
    store.clear()
    spent = lookups(table, values)
    return Found(
        starts,
        requests,
        read,
        spent,
        store.requests["get"] / len(values),
        store.bytes["get"] / len(values) / 1e3,
        resident(),
    )
