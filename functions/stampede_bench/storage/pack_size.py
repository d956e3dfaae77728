"""How large a pack should be: bytes a second and latency, from 4 KiB to 64 MiB.

"Each": one object of that size after the other. "Grouped": cutouts of 15 KB in packs of that size,
two packs at a time, like the function `cutouts`.
"""

from collections.abc import Iterator
from time import perf_counter

from stampede.store.runs.schema import CUTOUTS
from stampede.store.s3.bucket import S3Objects
from stampede.store.tables.table import Table
from stampede_bench.figures import Context, Figure, Must, Rival, over_rounds, percentile
from stampede_bench.instruments.bucket import clear, open_bucket
from stampede_bench.instruments.servers import servers
from stampede_bench.reading.images import CUTOUT_BYTES, FLUSH_ALERTS, images, noise, seconds, store

SIZES = tuple(4096 * 4**step for step in range(8))  # 4 KiB to 64 MiB
DEFAULT = 3 * FLUSH_ALERTS * CUTOUT_BYTES  # bytes of the alerts in flight
JUSTIFIED = Must(">=", 0.8, ratio=True)
AT_ONCE = 2


def measure(context: Context) -> Iterator[Figure]:
    """Every size, and the size that the default settings give.

    Then that one and the fastest take turns: seconds later a shared host may be half as fast.
    """
    most, least = context.scaled(120, 60, least=2), context.scaled(8, 5, least=2)
    enough = context.scaled(300, 100) * 10**6
    found: dict[int, float] = {}

    def packs(size: int) -> int:
        return max(least, min(most, enough // size))

    with servers(context, kafka=False) as running:
        bucket = open_bucket(running.settings("bench-pack-size"))
        for size in sorted((*SIZES, DEFAULT)):
            context.progress(f"{named(size)}")
            alone = one_by_one(bucket, size, packs(size))
            rate, latency = grouped(bucket, size, packs(size))
            found[size] = rate
            clear(bucket)
            subject = f"objects of {named(size)}"
            yield from figures(subject, "acknowledged each", *alone)
            yield from figures(subject, "cutouts grouped, with index", rate, latency)
            yield Figure(
                subject, "cutouts grouped, with index", rate * 1e6 / CUTOUT_BYTES, "cutouts/s"
            )
        best = max(found, key=lambda size: found[size])
        context.progress(f"{named(DEFAULT)} and {named(best)} in turn")
        turns = []
        for _ in range(context.scaled(5, 3)):
            default, fastest = (grouped(bucket, size, packs(size)) for size in (DEFAULT, best))
            turns.append(list(judged(best, default, fastest)))
            clear(bucket)
        yield from over_rounds(turns)


def judged(
    best: int, default: tuple[float, float], fastest: tuple[float, float]
) -> Iterator[Figure]:
    """Throughput and latency of packs of the default size, beside those of the fastest size.

    If the default is the faster one in its turn, it is the fastest.
    """
    subject = f"the default, {named(DEFAULT)}: {FLUSH_ALERTS} alerts in flight"
    rival = Rival(f"the faster of it and {named(best)}", max(default[0], fastest[0]))
    yield Figure(subject, "throughput", default[0], "MB/s", rival, JUSTIFIED)
    slower = Rival(f"at the fastest size, {named(best)}", fastest[1])
    yield Figure(subject, "until a pack is durable, p50", default[1], "ms", slower)


def figures(subject: str, name: str, rate: float, latency: float) -> Iterator[Figure]:
    """Throughput and latency."""
    yield Figure(subject, name, rate, "MB/s")
    yield Figure(subject, f"{name}, p50", latency, "ms")


def one_by_one(bucket: S3Objects, size: int, count: int) -> tuple[float, float]:
    """MB/s and milliseconds (p50) of plain PUTs, one after the other."""
    spent = []

    def put(number: int) -> None:
        begin = perf_counter()
        bucket.put(f"plain/{number}", noise(size, number))
        spent.append(1e3 * (perf_counter() - begin))

    whole = seconds(put, range(count), 1)
    return count * size / 1e6 / whole, percentile(spent, 50)


def grouped(bucket: S3Objects, size: int, count: int) -> tuple[float, float]:
    """MB/s and milliseconds (p50) of packs with their index runs, two at a time."""
    table = Table(bucket, CUTOUTS, threads=1)
    items = max(1, size // CUTOUT_BYTES)
    item_bytes, spent = min(size, CUTOUT_BYTES), []
    decoded = [images(number * items, items, item_bytes) for number in range(count)]

    def pack(number: int) -> None:
        begin = perf_counter()
        store(bucket, table, decoded[number], number)
        spent.append(1e3 * (perf_counter() - begin))

    whole = seconds(pack, range(count), AT_ONCE)
    return count * items * item_bytes / 1e6 / whole, percentile(spent, 50)


def named(size: int) -> str:
    """A size in words."""
    if size == DEFAULT:
        return f"{size / 1e6:.1f} MB"
    return f"{size >> 10} KiB" if size < 1 << 20 else f"{size >> 20} MiB"
