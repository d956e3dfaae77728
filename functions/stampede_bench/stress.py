"""Any S3 endpoint: does it do what Stampede asks of one, and how does it bear many clients?

    STAMPEDE_STORE=https://s3.example.org/bucket STAMPEDE_ACCESS_KEY=… STAMPEDE_SECRET_KEY=… \\
        stampede bench stress

Everything lies under a prefix of its own in that bucket, and is deleted afterwards. Without
``STAMPEDE_STORE`` a Ceph is started here. Requests are those of the functions, two tries after a
failure included. In Kubernetes the same command is a Job: manifests/stress.yaml.
"""

import multiprocessing
import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from typing import NamedTuple

from stampede.errors import StampedeError
from stampede.settings import Settings
from stampede.store.conformance import run_checks
from stampede.store.open import first_site
from stampede.store.s3 import S3Objects
from stampede_bench.figures import Context, Figure, Must, Rival, percentile
from stampede_bench.servers import objects, servers

ITEM = 15_000  # bytes, a cutout's
CLIENTS = (1, 10, 100, 1000)
MANY_CLIENTS = 32  # of the many objects
WORKS = Must(">=", 1.0)
NONE_FAILS = Must("<=", 0.0)
SLOWEST = Must("<=", 30_000.0)  # ms: what a client waits for an answer


class Stretch(NamedTuple):
    """Requests that were made: key and milliseconds of each that did not fail, as they ended."""

    keys: list[str]
    milliseconds: list[float]
    failures: int
    seconds: float

    @property
    def rate(self) -> float:
        """Requests a second that did not fail."""
        return len(self.milliseconds) / self.seconds


def measure(context: Context) -> Iterator[Figure]:
    """What works; then ever more clients; then many objects."""
    settings = Settings()
    own = "store" not in settings.model_fields_set
    with servers(context, kafka=False) if own else nullcontext() as running:
        if running:
            settings = running.settings("bench-stress")
        bucket, prefix = objects(settings), f"stress-{uuid.uuid4().hex}/"
        bucket.ensure_bucket()
        context.say(f"{settings.store}, under {prefix}")
        cores = len(os.sched_getaffinity(0))  # a Python has one
        processes = ProcessPoolExecutor(cores, multiprocessing.get_context("spawn"))
        try:
            yield from works(context, bucket, prefix)
            with processes:
                make = Requests(settings, processes, cores, 3.0 if context.quick else 60.0)
                yield from clients(context, make, prefix)
                yield from many(context, make, prefix)
        finally:
            context.say("deleting what was stored")
            clear(bucket, prefix)


def works(context: Context, bucket: S3Objects, prefix: str) -> Iterator[Figure]:
    """What Stampede asks of an S3 endpoint, one thing after the other."""
    for name, fault in run_checks(bucket, prefix):
        if fault:
            context.say(f"{name}: NOT SO: {fault}")
        yield Figure("what works", name, float(not fault), "yes or no", must=WORKS)


def clients(context: Context, make: "Requests", prefix: str) -> Iterator[Figure]:
    """PUTs, then GETs of the same objects, by more and more clients at once."""
    alone: dict[str, Stretch] = {}
    for number in CLIENTS:
        count = max(number, context.some(5000, 600, least=4))
        keys = [f"{prefix}{number}/{each:06}" for each in range(count)]
        for what in ("PUT", "GET"):
            found = make(what, keys, number)
            keys = found.keys
            if not found.milliseconds:
                raise StampedeError(f"{number} at once: every {what} failed")
            alone.setdefault(what, found)
            one = alone[what] if number > 1 else None
            subject = f"{what} of {ITEM:,} bytes, {number:,} at once"
            context.say(f"{subject}: {found.rate:,.0f}/s, {found.failures} failed")
            yield Figure(subject, "rate", found.rate, "/s", one and Rival("one client", one.rate))
            yield from latencies(subject, found, one, "one client")


def many(context: Context, make: "Requests", prefix: str) -> Iterator[Figure]:
    """Many objects in one bucket: whether the last ones cost more than the first."""
    third = context.some(10_000, 1000, least=20)
    thirds = []
    for part in range(3):
        keys = [f"{prefix}many/{part}{number:06}" for number in range(third)]
        thirds.append(make("PUT", keys, MANY_CLIENTS))
        context.say(f"{third:,} objects more: {thirds[-1].rate:,.0f}/s")
    first, _, last = thirds
    done = sum(len(each.milliseconds) for each in thirds)
    subject = f"{3 * third:,} objects of {ITEM:,} bytes, {MANY_CLIENTS} clients"
    yield Figure(subject, "stored", done, "objects")
    beside = f"the first {third:,}"
    yield Figure(subject, f"rate of the last {third:,}", last.rate, "/s", Rival(beside, first.rate))
    yield from latencies(subject, last, first, beside)
    yield from histogram(subject, [each for some in thirds for each in some.milliseconds])


def latencies(subject: str, found: Stretch, other: Stretch | None, what: str) -> Iterator[Figure]:
    """Percentiles beside those of others, and how many requests failed."""
    for share, must in ((50, None), (99, None), (100, SLOWEST)):
        rival = other and Rival(what, percentile(other.milliseconds, share))
        value = percentile(found.milliseconds, share)
        yield Figure(subject, f"p{share}", value, "ms", rival, must)
    yield Figure(subject, "failed", found.failures, "requests", must=NONE_FAILS)


def histogram(subject: str, milliseconds: list[float]) -> Iterator[Figure]:
    """How many requests took how long, in powers of two."""
    bins = Counter(max(0, int(each)).bit_length() for each in milliseconds)
    for power in range(min(bins), max(bins) + 1):
        low = 1 << power - 1 if power else 0
        name = f"took {low} to {1 << power} ms"
        yield Figure(subject, name, 100 * bins[power] / len(milliseconds), "%")


class Requests:
    """Makes requests by so many clients at once, for `seconds` at most.

    Parameters
    ----------
    pool
        That many `processes`, among which clients are divided: one Python has one core.
    """

    def __init__(
        self, settings: Settings, pool: ProcessPoolExecutor, processes: int, seconds: float
    ) -> None:
        self._settings, self._pool = settings, pool
        self._processes, self._seconds = processes, seconds
        list(pool.map(time.sleep, [1.0] * processes))  # starts all of them

    def __call__(self, what: str, keys: list[str], clients: int) -> Stretch:
        """One request for each key; those not begun in time are left out."""
        processes = min(clients, self._processes)
        shares = [clients // processes + (each < clients % processes) for each in range(processes)]
        futures = [
            self._pool.submit(
                work, self._settings, what, keys[each::processes], shares[each], self._seconds
            )
            for each in range(processes)
        ]
        parts = [future.result() for future in futures]
        done = sorted(each for some, _ in parts for each in some)
        begin = min((each.end - each.milliseconds / 1e3 for each in done), default=0.0)
        return Stretch(
            [each.key for each in done],
            [each.milliseconds for each in done],
            sum(failed for _, failed in parts),
            done[-1].end - begin if done else 1.0,
        )


class Done(NamedTuple):
    """A request that did not fail: when it ended, and how long it took."""

    end: float
    milliseconds: float
    key: str


def work(
    settings: Settings, what: str, keys: list[str], clients: int, seconds: float
) -> tuple[list[Done], int]:
    """What one process does: its requests, and how many failed."""
    bucket = S3Objects(first_site(settings), connections=clients)
    data = os.urandom(ITEM)
    deadline = time.monotonic() + seconds

    def client(number: int) -> tuple[list[Done], int]:
        done, failed = [], 0
        for key in keys[number::clients]:
            begin = time.monotonic()
            if begin > deadline:
                break
            try:
                if what == "PUT":
                    bucket.put(key, data)
                elif len(bucket.get(key)) != ITEM:
                    raise StampedeError(f"{key} is shorter than it was stored")
            except StampedeError:
                failed += 1
            else:
                end = time.monotonic()
                done.append(Done(end, 1e3 * (end - begin), key))
        return done, failed

    with ThreadPoolExecutor(clients) as pool:
        parts = list(pool.map(client, range(clients)))
    bucket.close()
    return [each for done, _ in parts for each in done], sum(failed for _, failed in parts)


def clear(bucket: S3Objects, prefix: str) -> None:
    """Delete everything under a prefix."""
    with ThreadPoolExecutor(MANY_CLIENTS) as pool:
        list(pool.map(lambda info: bucket.delete(info.key), bucket.list(prefix)))
