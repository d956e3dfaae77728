"""A topic a night, as ZTF has it: what the offsets of thousands of topics take.

Runs without rows stand for those that compaction leaves after so many nights. All else is real: the
footers, the blocks with the offsets, the checkpoints, and a process `read` with its ledger.
"""

import base64
import sys
import time
from collections.abc import Iterator
from datetime import date, timedelta

import numpy as np

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.lookup.ledger_cache import MAX_AGE
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage, PartitionId, topic_key
from stampede.store.runs.packed_coverage import PackedCoverage, packed
from stampede.store.runs.run_name import RunName, digest
from stampede.store.runs.schema import ALL_TABLES, TABLES, TableSpec
from stampede.store.runs.writer import RunWriter
from stampede.store.tables.checkpoint_files import put_checkpoint
from stampede.store.tables.table import Table
from stampede_bench.figures import Bound, Context, Figure, Rival, percentile
from stampede_bench.growth.first_answer import SECONDS, ask
from stampede_bench.instruments.bucket import open_bucket
from stampede_bench.instruments.counting_store import CountingStore
from stampede_bench.instruments.cpu import cpu_seconds
from stampede_bench.instruments.synthetic import shape
from stampede_local.ports import free_port
from stampede_local.process import Process

PARTITIONS = 16
FIRST = date(2026, 1, 1)
TOPICS = "ztf_{YYYYMMDD}_programid1,ztf_{YYYYMMDD}_programid2"
PAGES = 3
FOOTER, MEGABYTES, PAGE = Bound("<=", 4096.0), Bound("<=", 5.0), Bound("<=", 300.0)


def nights(context: Context, year: Settings, decade: Settings) -> Iterator[Figure]:
    """A year of one programme, and ten years of two.

    Parameters
    ----------
    year, decade
        Settings of empty buckets.
    """
    yield from _footers(context.scaled(400, 400, least=20), open_bucket(year), year.fanout)
    count = context.scaled(4000, 4000, least=20)
    context.progress(f"{2 * count:,} topics")
    bucket = open_bucket(decade)
    subject = f"{2 * count:,} topics of {PARTITIONS} partitions, two a night"
    read, before = 0.0, 0.0
    for spec in ALL_TABLES.values():
        before += _start(bucket, spec, decade.fanout, count, 0)
        read += _start(bucket, spec, decade.fanout, count, 2)
    more = (read - before) / 1e6
    name = f"read by a start of all {len(ALL_TABLES)} tables, more than without"
    yield Figure(subject, name, more, "MB", None, MEGABYTES)
    table = Table(bucket, ALL_TABLES["detections"])
    table.refresh()
    begin = time.perf_counter()
    held = len(table.coverage().partitions())
    unpacked = 1e3 * (time.perf_counter() - begin)
    if held != 2 * count * PARTITIONS:
        raise StampedeError(f"{held} partitions are held, {2 * count * PARTITIONS} were written")
    yield Figure(subject, "unpacking the offsets of a table", unpacked, "ms")
    yield from _pages(context, decade, bucket, subject)


def _footers(count: int, bucket: Objects, fanout: int) -> Iterator[Figure]:
    """The largest footer after so many nights."""
    spec = ALL_TABLES["detections"]
    _start(bucket, spec, fanout, count, 1)
    table = Table(bucket, spec, believe=False)
    held = [part.coverage for part in table.runs()]
    footers = [
        len((one.block if isinstance(one, PackedCoverage) else one).to_json()) for one in held
    ]
    whole = Rival("all offsets as JSON", len(table.coverage().to_json()))
    subject = f"{count:,} topics of {PARTITIONS} partitions, one a night"
    yield Figure(subject, "offsets in the largest footer", max(footers), "bytes", whole, FOOTER)
    blocks = [len(one.data) for one in held if isinstance(one, PackedCoverage)]
    yield Figure(subject, "the largest block before a footer", max(blocks, default=0), "bytes")


def _start(bucket: Objects, spec: TableSpec, fanout: int, count: int, programmes: int) -> float:
    """Write the runs of so many nights and a checkpoint; the bytes that a start then reads."""
    for info in [*bucket.list(f"tables/{spec.name}/"), *bucket.list(f"checkpoints/{spec.name}/")]:
        bucket.delete(info.key)
    for run in shape(count, fanout):
        writer, held = RunWriter(spec), of_nights(run.first, run.first + run.flushes, programmes)
        data = writer.close(run.level, (), packed(held) if run.level else held)
        name = RunName(run.level, digest(data))
        bucket.put(name.key(spec.name), memoryview(data))
    put_checkpoint(bucket, spec, Table(bucket, spec).listed())
    counted = CountingStore(bucket)
    Table(counted, spec).refresh()
    return float(counted.bytes["get"])


def of_nights(first: int, end: int, programmes: int) -> Coverage:
    """The offsets of the topics of some nights; of one topic for all nights if there are none."""
    spans: dict[PartitionId, np.ndarray] = {}
    for number in range(first, end):
        chance = np.random.default_rng(number + 1)
        for programme in range(1, programmes + 1):
            topic_id = base64.urlsafe_b64encode(chance.bytes(16)).decode()[:22]
            night = FIRST + timedelta(days=number)
            key = topic_key(f"ztf_{night:%Y%m%d}_programid{programme}", topic_id)
            ends = chance.integers(5_000, 40_000, PARTITIONS).tolist()
            spans |= {(key, at): np.array([[0, last]]) for at, last in enumerate(ends)}
    if not programmes:
        topic = topic_key("alerts", 22 * "A")
        ends = [9000 * first, 9000 * end]
        spans = {(topic, at): np.array([ends]) for at in range(PARTITIONS)}
    return Coverage(spans)


def _pages(context: Context, settings: Settings, bucket: Objects, subject: str) -> Iterator[Figure]:
    """The page of the ledger of a process `read`: the first, and those of later readings."""
    port, folder = free_port(), context.scratch
    env = {
        "STAMPEDE_STORE": settings.store,
        "STAMPEDE_ACCESS_KEY": settings.access_key,
        "STAMPEDE_SECRET_KEY": settings.secret_key.get_secret_value(),
        "STAMPEDE_PORT": str(port),
        "STAMPEDE_TOPICS": TOPICS,
    }
    command = [sys.executable, "-m", "stampede", "serve", "read"]
    process = Process("read", command, folder / "ledger.log", env)
    process.start()
    try:
        ask(process, port, "/health/liveness", time.perf_counter() + SECONDS)
        found = []
        for number in range(PAGES + 1):
            if number:  # alerts of tonight come, and the ledger is read anew
                for spec in TABLES.values():
                    rows = spec.schema.empty_table()
                    Table(bucket, spec, threads=1).append(rows, of_nights(-1, 0, number))
                time.sleep(MAX_AGE + 0.5)
            cpu, begin = cpu_seconds(process.pid or 0), time.perf_counter()
            status = ask(process, port, "/ledger", begin + SECONDS)
            wall = time.perf_counter() - begin
            found.append((1e3 * wall, 1e3 * (cpu_seconds(process.pid or 0) - cpu)))
            if status != 200:
                raise StampedeError(f"/ledger answered {status}: {process.tail(3)}")
    finally:
        process.stop()
    first, *later = found
    # Its time is that of waiting for Kafka, which is not there.
    yield Figure(subject, "first page of the ledger: CPU", first[1], "ms")
    wall, cpu = (percentile([each[place] for each in later], 50) for place in (0, 1))
    yield Figure(subject, "page of the ledger, read anew, p50", wall, "ms", target=PAGE)
    yield Figure(subject, "page of the ledger, read anew: CPU", cpu, "ms", None, PAGE)
