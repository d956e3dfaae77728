"""The users' own table: items of 15, 100 and 500 KB, written, overwritten, deleted.

Three layouts on the same disk: one synced file per item, one S3 object per item, and packs. Ceph
keeps its data in a file on that disk too. Each layout uses the number of threads at which it writes
fastest. On a busy machine CPU time per item, which includes Ceph's, is steadier than the rate.

Nothing in a pack is overwritten: a new version is a row in a new pack, and the index points to the
later night. The bytes of the old version stay until the packs of its night are deleted. That
deletion is measured as "delete and write".

With ``--pool ec`` it measures pools instead: see `pools`.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from stampede.store.runs.schema import CUTOUTS
from stampede.store.s3.bucket import S3Objects
from stampede.store.tables.table import Table
from stampede_bench.figures import Bound, Context, Figure, Rival, over_rounds
from stampede_bench.instruments.bucket import clear, open_bucket
from stampede_bench.instruments.cpu import Cpu
from stampede_bench.instruments.servers import servers
from stampede_bench.reading.images import CUTOUT_BYTES, KB, NIGHT, images, noise, seconds, store
from stampede_bench.storage import pools

SIZES = (CUTOUT_BYTES, 100 * KB, 500 * KB)
PACK_BYTES = 300 * 3 * CUTOUT_BYTES
THREADS = {"files": (1, 4, 16), "objects": (8, 32), "packs": (2, 4, 8)}
CPU_REQUIREMENT = Bound("<=", 0.08, ratio=True)
RATE_TARGET = Bound(">=", 40.0, ratio=True)
OPERATIONS = ("write", "overwrite", "delete and write")

Act = Callable[[int], object]


class Layout(NamedTuple):
    """A layout: its name, the number of items per action, and the action of each operation."""

    name: str
    items: int
    acts: dict[str, Callable[[int], Act]]  # from a number that makes names new


class Rate(NamedTuple):
    """Items a second in this many threads; milliseconds of CPU time per item."""

    rate: float
    threads: int
    cpu: float


def measure(context: Context) -> Iterator[Figure]:
    """Every size. Cutouts are judged: of them objects and packs are written in turn."""
    if context.pool:
        yield from pools.measure(context)
        return
    with servers(context, kafka=False) as running:
        bucket = open_bucket(running.settings("bench-layout"))
        for size in SIZES:
            context.progress(f"items of {size // KB} KB")
            directory = context.scratch / f"files-{size}"
            directory.mkdir()
            yield from one_round(context, bucket, directory, size)
            clear(bucket)
        context.progress(f"items of {CUTOUT_BYTES // KB} KB, objects and packs in turn")
        turns = []
        for _ in range(context.scaled(13, 3)):
            turns.append(list(one_turn(context, bucket)))
            clear(bucket)
        yield from over_rounds(turns)


def one_round(context: Context, bucket: S3Objects, directory: Path, size: int) -> Iterator[Figure]:
    """Every operation once in every layout."""
    few, packed_count = counts(context, size)
    rates = {
        "files": rates_of(files(directory, size), THREADS["files"], few),
        "objects": rates_of(single(bucket, size), THREADS["objects"], few),
    }
    packed_layout = packs(bucket, size, packed_count)
    rates["packs"] = rates_of(packed_layout, THREADS["packs"], packed_count)
    for operation in OPERATIONS:
        subject = f"items of {size // KB} KB, {operation}"
        file, one, packed = (rates[name][operation] for name in ("files", "objects", "packs"))
        yield Figure(subject, "a synced file each", file.rate, "items/s")
        yield Figure(subject, "an S3 object each", one.rate, "items/s")
        name, rival = packed_layout.name, Rival("an object each", one.rate)
        yield Figure(subject, name, packed.rate, "items/s", rival)
        yield Figure(subject, name, packed.rate, "items/s", Rival("a file each", file.rate))
        rival = Rival("an object each", one.cpu)
        yield Figure(subject, "CPU in packs, Ceph's included", packed.cpu, "ms/item", rival)
        for layout, rate in (("files", file), ("objects", one), ("packs", packed)):
            name = f"{layout} at once, at which writing is fastest"
            yield Figure(subject, name, rate.threads, "threads")


def counts(context: Context, size: int) -> tuple[int, int]:
    """How many files or objects, and how many packs are written."""
    few = context.scaled(700, 400, least=4) * CUTOUT_BYTES // size + 8
    return few, context.scaled(32, 8, least=2)


def one_turn(context: Context, bucket: S3Objects) -> Iterator[Figure]:
    """Cutouts written as objects and in packs, each with the number of threads that is fastest."""
    few, packed_count = counts(context, CUTOUT_BYTES)
    packed_count //= 2
    one = fastest(single(bucket, CUTOUT_BYTES), THREADS["objects"], few)
    layout = packs(bucket, CUTOUT_BYTES, packed_count)
    packed = fastest(layout, THREADS["packs"][1:], packed_count)  # two threads are never fastest
    subject = f"items of {CUTOUT_BYTES // KB} KB, written in turn"
    rival = Rival("an object each", one.rate)
    yield Figure(subject, layout.name, packed.rate, "items/s", rival, None, None, RATE_TARGET)
    rival = Rival("an object each", one.cpu)
    yield Figure(
        subject, "CPU in packs, Ceph's included", packed.cpu, "ms/item", rival, CPU_REQUIREMENT
    )


def rates_of(layout: Layout, choices: Sequence[int], count: int) -> dict[str, Rate]:
    """The rate of every operation, with the number of threads at which writing is fastest."""
    best = fastest(layout, choices, count)
    return {"write": best} | {
        operation: rate_of(layout, operation, best.threads, count) for operation in OPERATIONS[1:]
    }


def fastest(layout: Layout, choices: Sequence[int], count: int) -> Rate:
    """The rate of writing with the number of threads at which it is the fastest."""
    rates = [rate_of(layout, "write", threads, count) for threads in choices]
    return max(rates, key=lambda rate: rate.rate)


def rate_of(layout: Layout, operation: str, threads: int, count: int) -> Rate:
    """The rate of one operation, repeated `count` times."""
    act = layout.acts[operation](threads)
    cpu = Cpu({"all": os.getpid()})  # Ceph is a child of this process
    spent, items = seconds(act, range(count), threads), layout.items * count
    return Rate(items / spent, threads, 1e3 * sum(cpu.seconds().values()) / items)


def files(directory: Path, size: int) -> Layout:
    """One file per item, synced before it counts as written."""

    def write(path: Path, number: int) -> None:
        with open(path, "wb") as file:
            file.write(noise(size, number))
            file.flush()
            os.fsync(file.fileno())

    def create(series: int) -> Act:
        return lambda number: write(directory / f"{series}-{number}", number)

    def overwrite(series: int) -> Act:
        return lambda number: write(directory / f"{series}-{number}", number + 1)

    def replace(series: int) -> Act:
        def act(number: int) -> None:
            (directory / f"{series}-{number}").unlink()
            write(directory / f"{series}-{number}", number)

        return act

    return Layout("files", 1, dict(zip(OPERATIONS, (create, overwrite, replace), strict=True)))


def single(bucket: S3Objects, size: int) -> Layout:
    """One S3 object per item."""

    def put(series: int, number: int, version: int) -> None:
        bucket.put(f"single/{series}/{number}", noise(size, number + version))

    def replace(series: int) -> Act:
        def act(number: int) -> None:
            bucket.delete(f"single/{series}/{number}")
            put(series, number, 2)

        return act

    acts = (
        lambda series: lambda number: put(series, number, 0),
        lambda series: lambda number: put(series, number, 1),
        replace,
    )
    return Layout("objects", 1, dict(zip(OPERATIONS, acts, strict=True)))


def packs(bucket: S3Objects, size: int, count: int) -> Layout:
    """Many items in a pack, with the index: all that the function `cutouts` does after decoding."""
    table = Table(bucket, CUTOUTS, threads=1)
    items = PACK_BYTES // size // 3 * 3
    keys: dict[tuple[int, int], str] = {}

    def put(series: int, night: int) -> Act:
        starts = [(series * 1000 + number) * items for number in range(count)]
        decoded = [images(first, items, size, night) for first in starts]

        def act(number: int) -> None:
            keys[series, number] = store(bucket, table, decoded[number], number)

        return act

    def replace(series: int) -> Act:
        put_again = put(series, NIGHT + 2)

        def act(number: int) -> None:
            bucket.delete(keys[series, number])
            put_again(number)

        return act

    acts = (lambda series: put(series, NIGHT), lambda series: put(series, NIGHT + 1), replace)
    name = f"packs of {items} ({items * size / 1e6:.0f} MB)"
    return Layout(name, items, dict(zip(OPERATIONS, acts, strict=True)))
