"""The users' own table: items of 15, 100 and 500 KB written, overwritten, deleted and written.

As files in a directory, each synced; as one S3 object each; in packs. All on the same disk, where
the Ceph lies in a file too; each in as many threads as writing is fastest in. The CPU time of
an item, Ceph's included, says on a busy machine more than the rate.

Nothing in a pack is overwritten: a new version is one more row in a new pack, and the index leads
to the later night. The old one's bytes stay until the packs of its night are deleted, which is
what "deleted and written" deletes here.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from stampede.store.s3 import S3Objects
from stampede.store.tables import CUTOUTS, Table
from stampede_bench.bucket import clear, open_bucket
from stampede_bench.cpu import Cpu
from stampede_bench.figures import Context, Figure, Must, Rival, over_rounds
from stampede_bench.images import CUTOUT_BYTES, KB, NIGHT, images, noise, seconds, store
from stampede_bench.servers import servers

SIZES = (CUTOUT_BYTES, 100 * KB, 500 * KB)
PACK_BYTES = 300 * 3 * CUTOUT_BYTES
THREADS = {"files": (1, 4, 16), "objects": (8, 32), "packs": (2, 4, 8)}
MUST, AIM = Must(">=", 20.0, ratio=True), Must(">=", 40.0, ratio=True)
OPERATIONS = ("write", "overwrite", "delete and write")

Act = Callable[[int], object]


class Way(NamedTuple):
    """A layout: how many items each act is about, and what is done, by operation."""

    what: str
    items: int
    acts: dict[str, Callable[[int], Act]]  # of a number that makes names new


class Rate(NamedTuple):
    """Items a second in so many threads; milliseconds of CPU time of one."""

    rate: float
    threads: int
    cpu: float


def measure(context: Context) -> Iterator[Figure]:
    """Several rounds of every size."""
    with servers(context, kafka=False) as running:
        bucket = open_bucket(running.settings("bench-layout"))
        for size in SIZES:
            context.progress(f"items of {size // KB} KB")
            rounds = []
            for number in range(context.scaled(3, 1)):
                directory = context.scratch / f"files-{size}-{number}"
                directory.mkdir()
                rounds.append(list(one_round(context, bucket, directory, size)))
                clear(bucket)
            yield from over_rounds(rounds)


def one_round(context: Context, bucket: S3Objects, directory: Path, size: int) -> Iterator[Figure]:
    """Every layout and operation once."""
    few = context.scaled(1500, 400, least=4) * CUTOUT_BYTES // size + 8
    rates = {
        "files": rates_of(files(directory, size), THREADS["files"], few),
        "objects": rates_of(single(bucket, size), THREADS["objects"], few),
    }
    way = packs(bucket, size)
    rates["packs"] = rates_of(way, THREADS["packs"], context.scaled(32, 8, least=2))
    for operation in OPERATIONS:
        subject = f"items of {size // KB} KB, {operation}"
        file, one, packed = (rates[name][operation] for name in ("files", "objects", "packs"))
        yield Figure(subject, "a synced file each", file.rate, "items/s")
        yield Figure(subject, "an S3 object each", one.rate, "items/s")
        judged = size == CUTOUT_BYTES and operation == "write"
        must, aim = (MUST, AIM) if judged else (None, None)
        single_ = Rival("an object each", one.rate)
        yield Figure(subject, way.what, packed.rate, "items/s", single_, must, None, aim)
        yield Figure(subject, way.what, packed.rate, "items/s", Rival("a file each", file.rate))
        single_ = Rival("an object each", one.cpu)
        yield Figure(subject, "CPU in packs, Ceph's included", packed.cpu, "ms/item", single_)
        for name, rate in (("files", file), ("objects", one), ("packs", packed)):
            what = f"{name} at once, at which writing is fastest"
            yield Figure(subject, what, rate.threads, "threads")


def rates_of(way: Way, choices: Sequence[int], count: int) -> dict[str, Rate]:
    """Every operation in as many threads as writing is fastest in."""
    written = [rate_of(way, "write", threads, count) for threads in choices]
    best = max(written, key=lambda each: each.rate)
    return {"write": best} | {
        operation: rate_of(way, operation, best.threads, count) for operation in OPERATIONS[1:]
    }


def rate_of(way: Way, operation: str, threads: int, count: int) -> Rate:
    """One operation on so many."""
    act = way.acts[operation](threads)
    cpu = Cpu({"all": os.getpid()})  # of which Ceph is a child
    spent, items = seconds(act, range(count), threads), way.items * count
    return Rate(items / spent, threads, 1e3 * sum(cpu.seconds().values()) / items)


def files(directory: Path, size: int) -> Way:
    """A file each, synced before it counts as written."""

    def write(path: Path, number: int) -> None:
        with open(path, "wb") as file:
            file.write(noise(size, number))
            file.flush()
            os.fsync(file.fileno())

    def new(series: int) -> Act:
        return lambda number: write(directory / f"{series}-{number}", number)

    def again(series: int) -> Act:
        return lambda number: write(directory / f"{series}-{number}", number + 1)

    def anew(series: int) -> Act:
        def act(number: int) -> None:
            (directory / f"{series}-{number}").unlink()
            write(directory / f"{series}-{number}", number)

        return act

    return Way("files", 1, dict(zip(OPERATIONS, (new, again, anew), strict=True)))


def single(bucket: S3Objects, size: int) -> Way:
    """An S3 object each."""

    def put(series: int, number: int, version: int) -> None:
        bucket.put(f"single/{series}/{number}", noise(size, number + version))

    def anew(series: int) -> Act:
        def act(number: int) -> None:
            bucket.delete(f"single/{series}/{number}")
            put(series, number, 2)

        return act

    acts = (
        lambda series: lambda number: put(series, number, 0),
        lambda series: lambda number: put(series, number, 1),
        anew,
    )
    return Way("objects", 1, dict(zip(OPERATIONS, acts, strict=True)))


def packs(bucket: S3Objects, size: int) -> Way:
    """Many in a pack, and where each lies in the index: all that `cutouts` does but decode."""
    table = Table(bucket, CUTOUTS, threads=1)
    each = PACK_BYTES // size // 3 * 3
    there: dict[tuple[int, int], str] = {}

    def put(series: int, number: int, night: int) -> None:
        first = (series * 1000 + number) * each
        there[series, number] = store(bucket, table, images(first, each, size, night), number)

    def anew(series: int) -> Act:
        def act(number: int) -> None:
            bucket.delete(there[series, number])
            put(series, number, NIGHT + 2)

        return act

    acts = (
        lambda series: lambda number: put(series, number, NIGHT),
        lambda series: lambda number: put(series, number, NIGHT + 1),
        anew,
    )
    what = f"packs of {each} ({each * size / 1e6:.0f} MB)"
    return Way(what, each, dict(zip(OPERATIONS, acts, strict=True)))
