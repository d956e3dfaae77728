"""Any S3 endpoint: does it do what Stampede needs, and how fast is it with many clients?

    STAMPEDE_STORE=https://s3.example.org/bucket STAMPEDE_ACCESS_KEY=… STAMPEDE_SECRET_KEY=… \\
        stampede bench stress

All objects are stored under a prefix of their own and deleted afterwards. Without
``STAMPEDE_STORE`` a Ceph is started here, and removed as a whole. The requests are those of the
functions, including two retries after a failure. In Kubernetes the same benchmark is a Job:
manifests/stress.yaml.

Several pods, or processes on several machines, measure together if each has these variables:

- ``STAMPEDE_STRESS_PODS``: how many they are
- ``JOB_COMPLETION_INDEX``: which of them this is, from 0 on; an indexed Job sets it
- ``STAMPEDE_STRESS_RUN``: a name of the run, the same for all and new for each run

They need ``STAMPEDE_STORE``. Pod 0 makes the checks. Then the pods divide 1,000 clients among them
for PUTs and GETs, and 32 clients for many objects. Each pod is one process, so it uses one core. A
step begins at the same time for all, by the clock of each node: clocks of nodes may differ by
milliseconds, and so does the time between a step's begin and its end. Pod 0 prints the figures of
all pods and deletes their objects. If a pod is lost, the others end with an error that names it,
within a minute.
"""

import multiprocessing
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import chain

from stampede.config.settings import Settings
from stampede.errors import SetupError, StampedeError
from stampede.store.conformance import run_checks
from stampede.store.objects.object_store import Objects
from stampede_bench.figures import Bound, Context, Figure, Rival, percentile
from stampede_bench.instruments.bucket import clear, open_bucket
from stampede_bench.storage.client_requests import ITEM, Requests, RequestTimes
from stampede_bench.storage.shared_requests import SharedRequests
from stampede_bench.storage.stress_place import Place, place_in
from stampede_bench.storage.stress_pods import Pods

CLIENTS = (1, 10, 100, 1000)
MANY_CLIENTS = 32  # that store the many objects
WORKS = Bound(">=", 1.0)
NONE_FAILS = Bound("<=", 0.0)
SLOWEST = Bound("<=", 30_000.0)  # ms: how long a client waits for a response


Make = Callable[[str, list[str], int], RequestTimes]
"""Makes requests of a method, one for each key, by so many clients: see `Requests`."""


def measure(context: Context) -> Iterator[Figure]:
    """The conformance checks, then more and more clients, then many objects."""
    place = place_in(os.environ)
    run = place.run if place else uuid.uuid4().hex
    prefix = f"stress-{run}/"
    with endpoint(context, prefix, place) as settings:
        bucket = open_bucket(settings)
        bucket.ensure_bucket()
        context.progress(f"{settings.store}, under {prefix}")
        if place:
            with Pods(bucket, prefix, place) as pods:
                yield from together(context, settings, bucket, pods)
        else:
            yield from alone(context, settings, bucket, prefix)


def alone(context: Context, settings: Settings, bucket: Objects, prefix: str) -> Iterator[Figure]:
    """All figures, measured by as many processes as there are cores here."""
    cores = len(os.sched_getaffinity(0))  # one Python process uses one core
    processes = ProcessPoolExecutor(cores, multiprocessing.get_context("spawn"))
    with processes:
        yield from works(context, bucket, prefix)
        make = Requests(settings, processes, cores, longest(context))
        yield from clients(context, make, prefix, CLIENTS, context.scaled(3000, 600, least=4))
        yield from many(context, make, prefix)


def together(context: Context, settings: Settings, bucket: Objects, pods: Pods) -> Iterator[Figure]:
    """What all pods measure together, of pod 0: its checks, the most clients, many objects.

    The other pods do their share, and have no figures.
    """
    index, of = pods.place.pod, pods.place.pods
    context.progress(f"pod {index} of {of}" + (": pod 0 has the figures" if index else ""))
    if index == 0:
        yield from works(context, bucket, pods.prefix)
    make = SharedRequests(settings, pods, longest(context))
    objects = context.scaled(10_000, 1000, least=4)
    for figure in chain(
        clients(context, make, pods.prefix, CLIENTS[-1:], objects),
        many(context, make, pods.prefix),
    ):
        if index == 0:
            yield figure._replace(subject=f"{figure.subject}, of {of} pods")


def longest(context: Context) -> float:
    """After how many seconds no more requests of a step begin."""
    return 3.0 if context.quick else 60.0


@contextmanager
def endpoint(context: Context, prefix: str, place: Place | None) -> Iterator[Settings]:
    """The settings of the endpoint to measure: the one that is set, or a Ceph started here.

    Nothing is left under the prefix, once pod 0 has ended. Raises `SetupError` if several pods
    have no endpoint in common.
    """
    settings = Settings()
    if "store" in settings.model_fields_set:
        try:
            yield settings
        finally:
            if place is None or place.pod == 0:
                context.progress("deleting what was stored")
                clear(open_bucket(settings), prefix)
        return
    if place:
        raise SetupError(f"set STAMPEDE_STORE: {place.pods} pods need the same store")
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


def clients(
    context: Context, make: Make, prefix: str, numbers: Sequence[int], objects: int
) -> Iterator[Figure]:
    """PUTs, then GETs of the same objects, by more and more clients at once.

    There are so many `objects`, or one for each client if these are more.
    """
    single: dict[str, RequestTimes] = {}
    for number in numbers:
        keys = [f"{prefix}{number}/{item:06}" for item in range(max(number, objects))]
        for method in ("PUT", "GET"):
            times = make(method, keys, number)
            keys = times.keys
            if not times.milliseconds:
                raise StampedeError(f"{number} at once: every {method} failed")
            if number == 1:
                single[method] = times
            one = single.get(method) if number > 1 else None
            subject = f"{method} of {ITEM:,} bytes, {number:,} at once"
            context.progress(f"{subject}: {times.rate:,.0f}/s, {times.failures} failed")
            yield Figure(subject, "rate", times.rate, "/s", one and Rival("one client", one.rate))
            yield from latencies(subject, times, one, "one client")


def many(context: Context, make: Make, prefix: str) -> Iterator[Figure]:
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
