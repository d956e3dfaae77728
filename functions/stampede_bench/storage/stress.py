"""Any S3 endpoint: does it do what Stampede needs, and how fast is it with many clients?

    STAMPEDE_STORE=https://s3.example.org/bucket STAMPEDE_ACCESS_KEY=… STAMPEDE_SECRET_KEY=… \\
        stampede bench stress

All objects are stored under a prefix of their own and deleted afterwards. Without
``STAMPEDE_STORE`` a Ceph is started here, and removed as a whole. The requests are those of the
functions, including two retries after a failure. In Kubernetes the same benchmark is a Job:
manifests/stress.yaml.
"""

import multiprocessing
import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from stampede.config.settings import Settings
from stampede.errors import SetupError, StampedeError
from stampede.store.conformance import run_checks
from stampede.store.objects.object_store import Objects
from stampede.store.open import first_site
from stampede.store.s3.bucket import S3Objects
from stampede_bench.figures import Bound, Context, Figure, Rival, percentile
from stampede_bench.instruments.bucket import clear, open_bucket

ITEM = 15_000  # bytes of a cutout
CLIENTS = (1, 10, 100, 1000)
MANY_CLIENTS = 32  # that store the many objects
WORKS = Bound(">=", 1.0)
NONE_FAILS = Bound("<=", 0.0)
SLOWEST = Bound("<=", 30_000.0)  # ms: how long a client waits for a response


class RequestTimes(NamedTuple):
    """Requests in the order of their ends: key and milliseconds of each that succeeded."""

    keys: list[str]
    milliseconds: list[float]
    failures: int
    seconds: float

    @property
    def rate(self) -> float:
        """Successful requests per second."""
        return len(self.milliseconds) / self.seconds


def measure(context: Context) -> Iterator[Figure]:
    """The conformance checks, then more and more clients, then many objects."""
    prefix = f"stress-{uuid.uuid4().hex}/"
    with endpoint(context, prefix) as settings:
        bucket = open_bucket(settings)
        bucket.ensure_bucket()
        context.progress(f"{settings.store}, under {prefix}")
        cores = len(os.sched_getaffinity(0))  # one Python process uses one core
        processes = ProcessPoolExecutor(cores, multiprocessing.get_context("spawn"))
        with processes:
            yield from works(context, bucket, prefix)
            make = Requests(settings, processes, cores, 3.0 if context.quick else 60.0)
            yield from clients(context, make, prefix)
            yield from many(context, make, prefix)


@contextmanager
def endpoint(context: Context, prefix: str) -> Iterator[Settings]:
    """The settings of the endpoint to measure: the one that is set, or a Ceph started here.

    Nothing is left under the prefix.
    """
    settings = Settings()
    if "store" in settings.model_fields_set:
        try:
            yield settings
        finally:
            context.progress("deleting what was stored")
            clear(open_bucket(settings), prefix)
        return
    try:
        from stampede_bench.instruments.servers import servers
    except ModuleNotFoundError:  # the image has no local servers
        raise SetupError("set STAMPEDE_STORE: no Ceph can be started here") from None
    with servers(context, kafka=False) as running:
        yield running.settings("bench-stress")


def works(context: Context, bucket: Objects, prefix: str) -> Iterator[Figure]:
    """Each conformance check: 1 if the endpoint passes, otherwise 0."""
    for name, fault in run_checks(bucket, prefix):
        if fault is not None:
            context.progress(f"{name}: NOT SO: {fault}")
        yield Figure("what works", name, float(fault is None), "yes or no", requirement=WORKS)


def clients(context: Context, make: "Requests", prefix: str) -> Iterator[Figure]:
    """PUTs, then GETs of the same objects, by more and more clients at once."""
    alone: dict[str, RequestTimes] = {}
    for number in CLIENTS:
        count = max(number, context.scaled(3000, 600, least=4))
        keys = [f"{prefix}{number}/{item:06}" for item in range(count)]
        for method in ("PUT", "GET"):
            times = make(method, keys, number)
            keys = times.keys
            if not times.milliseconds:
                raise StampedeError(f"{number} at once: every {method} failed")
            alone.setdefault(method, times)
            one = alone[method] if number > 1 else None
            subject = f"{method} of {ITEM:,} bytes, {number:,} at once"
            context.progress(f"{subject}: {times.rate:,.0f}/s, {times.failures} failed")
            yield Figure(subject, "rate", times.rate, "/s", one and Rival("one client", one.rate))
            yield from latencies(subject, times, one, "one client")


def many(context: Context, make: "Requests", prefix: str) -> Iterator[Figure]:
    """Many objects in one bucket: do the last ones cost more than the first?"""
    third = context.scaled(3000, 1000, least=20)
    thirds = []
    for part in range(3):
        keys = [f"{prefix}many/{part}{number:06}" for number in range(third)]
        thirds.append(make("PUT", keys, MANY_CLIENTS))
        context.progress(f"{third:,} objects more: {thirds[-1].rate:,.0f}/s")
    first, _, last = thirds
    milliseconds = [value for times in thirds for value in times.milliseconds]
    subject = f"{3 * third:,} objects of {ITEM:,} bytes, {MANY_CLIENTS} clients"
    yield Figure(subject, "stored", len(milliseconds), "objects")
    beside = f"the first {third:,}"
    yield Figure(subject, f"rate of the last {third:,}", last.rate, "/s", Rival(beside, first.rate))
    yield from latencies(subject, last, first, beside)
    yield from histogram(subject, milliseconds)


def latencies(
    subject: str, times: RequestTimes, other: RequestTimes | None, name: str
) -> Iterator[Figure]:
    """Percentiles beside those of `other`, which is called `name`, and the number of failures."""
    for share, requirement in ((50, None), (99, None), (100, SLOWEST)):
        rival = other and Rival(name, percentile(other.milliseconds, share))
        value = percentile(times.milliseconds, share)
        yield Figure(subject, f"p{share}", value, "ms", rival, requirement)
    yield Figure(subject, "failed", times.failures, "requests", requirement=NONE_FAILS)


def histogram(subject: str, milliseconds: list[float]) -> Iterator[Figure]:
    """Percentage of requests by duration, in powers of two."""
    bins = Counter(max(0, int(value)).bit_length() for value in milliseconds)
    for power in range(min(bins), max(bins) + 1):
        low = 1 << power - 1 if power else 0
        name = f"took {low} to {1 << power} ms"
        yield Figure(subject, name, 100 * bins[power] / len(milliseconds), "%")


class Requests:
    """Makes requests by many clients at once, for `seconds` at most.

    Parameters
    ----------
    pool
        A pool of this many `processes`. The clients are divided among them, since one Python
        process uses one core.
    """

    def __init__(
        self, settings: Settings, pool: ProcessPoolExecutor, processes: int, seconds: float
    ) -> None:
        self._settings, self._pool = settings, pool
        self._processes, self._seconds = processes, seconds
        list(pool.map(time.sleep, [1.0] * processes))  # starts all of them

    def __call__(self, method: str, keys: list[str], clients: int) -> RequestTimes:
        """One request for each key, except for keys whose turn does not come in time."""
        processes = min(clients, self._processes)
        shares = [clients // processes + (n < clients % processes) for n in range(processes)]
        futures = [
            self._pool.submit(
                work, self._settings, method, keys[n::processes], shares[n], self._seconds
            )
            for n in range(processes)
        ]
        parts = [future.result() for future in futures]
        done = sorted(request for requests, _ in parts for request in requests)
        begin = min((one.end - one.milliseconds / 1e3 for one in done), default=0.0)
        return RequestTimes(
            [one.key for one in done],
            [one.milliseconds for one in done],
            sum(failures for _, failures in parts),
            done[-1].end - begin if done else 1.0,
        )


class Done(NamedTuple):
    """A request that succeeded: when it ended, and how long it took."""

    end: float
    milliseconds: float
    key: str


def work(
    settings: Settings, method: str, keys: list[str], clients: int, seconds: float
) -> tuple[list[Done], int]:
    """The work of one process: its successful requests, and the number of failures."""
    bucket = S3Objects(first_site(settings), connections=clients)
    data = os.urandom(ITEM)
    deadline = time.monotonic() + seconds

    def client(number: int) -> tuple[list[Done], int]:
        done, failures = [], 0
        for key in keys[number::clients]:
            begin = time.monotonic()
            if begin > deadline:
                break
            try:
                if method == "PUT":
                    bucket.put(key, data)
                elif len(bucket.get(key)) != ITEM:
                    raise StampedeError(f"{key} is shorter than it was stored")
            except StampedeError:
                failures += 1
            else:
                end = time.monotonic()
                done.append(Done(end, 1e3 * (end - begin), key))
        return done, failures

    with ThreadPoolExecutor(clients) as pool:
        parts = list(pool.map(client, range(clients)))
    bucket.close()
    return [one for done, _ in parts for one in done], sum(failures for _, failures in parts)
