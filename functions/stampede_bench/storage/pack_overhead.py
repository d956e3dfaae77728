"""What packs cost beyond plain PUTs: the benchmark `limit`.

It measures bytes a second of cutouts stored in packs, with their index runs, and of plain PUTs of
the same bytes, in turn and with the same number of threads. It also compares the CPU time of both,
which includes Ceph's: the better measure if other processes use the machine. Bytes are those that
the survey sent: ZTF gzips its stamps, so a pack has as many; of LSST's files it has fewer.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from stampede.alerts.arrays import viewed
from stampede.store.runs.schema import CUTOUTS
from stampede.store.s3.bucket import S3Objects
from stampede.store.tables.table import Table
from stampede_bench.figures import Context, Figure, Must, Rival, over_rounds
from stampede_bench.ingestion.decode import batch_decoder
from stampede_bench.instruments import load
from stampede_bench.instruments.bucket import clear, open_bucket
from stampede_bench.instruments.cpu import Cpu
from stampede_bench.instruments.servers import servers
from stampede_bench.reading.images import CUTOUT_BYTES, FLUSH_ALERTS, images, noise, seconds, store

MUST, AIM = Must(">=", 0.7, ratio=True), Must(">=", 0.9, ratio=True)
THREADS = (2, 4, 8)  # as `layout`: each side is judged at the number at which it is fastest
COUNT = 3 * FLUSH_ALERTS
DETECTORS, ALERTS_OF_EACH = 6, 53  # 318 LSST alerts; 53 is Rubin's mean of a visit and detector


class Files(NamedTuple):
    """A pack's worth of cutouts: what they are, their bytes as sent, and their rows by a number."""

    title: str
    size: int
    rows: Callable[[int], pa.Table]


def measure(context: Context) -> Iterator[Figure]:
    """Rounds of packs and plain PUTs in turn, for each survey."""
    with servers(context, kafka=False) as running:
        bucket = open_bucket(running.settings("bench-limit"))
        count = context.scaled(16, 6, least=2)
        pids = {"this process, and Ceph, which is its child": os.getpid()}
        # Of LSST's files fewer bytes are stored than sent: far from the bound.
        for files, rounds in (stamps(), context.scaled(7, 3)), (exposures(), context.scaled(3, 3)):
            list(one_round(bucket, files, -1, 2, pids))  # warm up: Ceph makes its first files
            context.progress(f"{rounds} rounds: {count} packs of {files.title}, {count} plain PUTs")
            every = [list(one_round(bucket, files, n, count, pids)) for n in range(rounds)]
            yield from over_rounds(every)


def stamps() -> Files:
    """Incompressible, as ZTF's."""
    size = COUNT * CUTOUT_BYTES
    title = f"{COUNT:,} gzipped stamps, {size / 1e6:.1f} MB"
    return Files(title, size, lambda first: images(first, COUNT, CUTOUT_BYTES))


def exposures() -> Files:
    """LSST's: simulated alerts that share PSFs as the alerts of a visit and detector do."""
    rows = batch_decoder().cutouts(load.exposures(DETECTORS, ALERTS_OF_EACH).messages).rows
    size = sum(len(file) for file in viewed(rows["fits"].chunk(0)) if file is not None)
    return Files(f"{rows.num_rows} files of LSST, {size / 1e6:.1f} MB", size, lambda _: rows)


def one_round(
    bucket: S3Objects, files: Files, number: int, count: int, pids: Mapping[str, int]
) -> Iterator[Figure]:
    """`count` packs and `count` plain PUTs with every number of threads.

    The bound compares the fastest of each.
    """
    table = Table(bucket, CUTOUTS, threads=1)
    packed, plain = {}, {}
    spent = {"packs": 0.0, "plain PUTs": 0.0}

    def pack(decoded: tuple[int, pa.Table]) -> None:
        first, rows = decoded
        store(bucket, table, rows, first)

    def put(first: int) -> None:
        bucket.put(f"plain/{first}", noise(files.size, first))

    for threads in THREADS:
        firsts = [(number * 64 + n) * 1000 + threads * 10**6 for n in range(count)]
        decoded = [(first, files.rows(first)) for first in firsts]
        cpu = Cpu(pids)
        packed[threads] = count * files.size / 1e6 / seconds(pack, decoded, threads)
        spent["packs"] += sum(cpu.seconds().values())
        cpu = Cpu(pids)
        plain[threads] = count * files.size / 1e6 / seconds(put, firsts, threads)
        spent["plain PUTs"] += sum(cpu.seconds().values())
    clear(bucket)
    subject = f"bytes into packs of {files.title}"
    for threads in THREADS:
        rival = Rival("plain PUTs of as many bytes, as many at once", plain[threads])
        yield Figure(subject, f"{threads} at once", packed[threads], "MB/s", rival)
    rival = Rival("the fastest of plain PUTs", max(plain.values()))
    yield Figure(subject, "the fastest", max(packed.values()), "MB/s", rival, MUST, None, AIM)
    megabytes = len(THREADS) * count * files.size / 1e6
    rival = Rival("of plain PUTs", 1e3 * spent["plain PUTs"] / megabytes)
    packs = 1e3 * spent["packs"] / megabytes
    yield Figure(subject, "CPU of Ceph and client", packs, "ms/MB", rival)
