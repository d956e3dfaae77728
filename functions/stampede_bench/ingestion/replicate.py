"""Copying to a distant second site: how much of the rate remains with a long round trip.

The second site is behind a `link`, and `replicate` copies one object for each event. It runs beside
the first site (push: it writes through the link) or beside the second (pull: it reads through the
link). Both sites keep their data in memory, so this measures the copying and not a disk.

The link does not limit bandwidth. On a real link of 150 ms, one TCP connection carries at most its
window: with Linux's defaults (``tcp_wmem``, ``tcp_rmem``) about 25 to 40 MB/s. Each concurrent copy
has a connection of its own.

Connections are kept for weeks, so the rate is that of connections at work. The first turn of each
distance is not counted: there each connection shakes hands and finds out how fast it may send,
which takes ten round trips. Later turns keep the connections. Both distances take turns, seconds
apart, because a shared host may be half as fast a minute later. A turn is counted from when a
quarter of its objects are copied, since none is complete at first, until the last one begins
(`at_work`). Then fewer and fewer connections have something to copy. The rate with both ends is
told beside it.
"""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from statistics import geometric_mean
from typing import NamedTuple

from stampede.config.settings import Settings
from stampede.errors import Overloaded, StampedeError
from stampede.events.cloudevents.s3_events import stored_event
from stampede.handlers.replicate import Replicate
from stampede.store.open import first_site
from stampede.store.runs.run_name import digest
from stampede.store.s3.bucket import S3Objects
from stampede_bench.figures import Bound, Context, Figure, Rival, over_rounds
from stampede_bench.instruments.bucket import clear, open_bucket
from stampede_bench.instruments.link import link
from stampede_local import installer
from stampede_local.ports import free_port
from stampede_local.tls import TlsCeph

REQUIREMENT = Bound(
    ">=", 0.85
)  # the mean of all four ways: one alone differs by 5 % from run to run
EACH, EACH_TARGET = Bound(">=", 0.8, ratio=True), Bound(">=", 0.95, ratio=True)
ROUND_TRIPS = (0, 150)  # ms
PACK = 13_000_000  # bytes, of 300 LSST alerts
SMALL = (14_000, 180_000, 2_000_000)  # bytes of the runs and raw alerts stored with a pack
TURNS = 3  # of each distance, after the first; odd, see `over_rounds`
START = 4  # one part in so many is copied before the rate is counted
GIGABYTES = 8
GC_SECONDS = 3  # free the memory of one round, a gigabyte, before the next rounds


class Copied(NamedTuple):
    """MB/s of connections at work, MB/s from the first one to the last, number of cores used."""

    rate: float
    with_both_ends: float
    cores: float


class Moved(NamedTuple):
    """When a copy began and when it was done, in seconds, and the key of the object."""

    begun: float
    done: float
    key: str


def measure(context: Context) -> Iterator[Figure]:
    """Several rounds of each direction and scheme."""
    installer.ensure(installer.CEPH, context.install, context.progress)
    with ExitStack() as stack:
        near, far = (
            TlsCeph(
                context.scratch / name, free_port(2), "memstore", GIGABYTES, gc_seconds=GC_SECONDS
            )
            for name in ("near", "far")
        )
        for site in (near, far):
            stack.enter_context(site)
        links = {
            (scheme, trip): stack.enter_context(link(context.scratch, port, trip))
            for scheme, port in (("http", far.port), ("https", far.tls_port))
            for trip in ROUND_TRIPS
        }
        ratios: list[float] = []
        for direction, source, target in (("push", near, far), ("pull", far, near)):
            first, second = (
                open_bucket(site.settings("http", site.port)) for site in (source, target)
            )
            keys = fill(first, context.scaled(100, 30))
            second.ensure_bucket()
            for scheme in ("http", "https"):
                far_settings = {
                    trip: far.settings(scheme, links[scheme, trip]) for trip in ROUND_TRIPS
                }
                here = near.settings("http", near.port)
                settings = {
                    trip: joined(here, there) if direction == "push" else joined(there, here)
                    for trip, there in far_settings.items()
                }
                subject = f"{direction}, {scheme.upper()}"
                turns = list(rounds(context, subject, settings, keys, second))
                ratios += [
                    figure.ratio for figure in chain(*turns) if figure.requirement and figure.ratio
                ]
                yield from over_rounds(turns)
            clear(first)
    name, spread = "150 ms, of the rate at 0 ms, mean of all turns", (min(ratios), max(ratios))
    yield Figure("all four ways", name, geometric_mean(ratios), "x", None, REQUIREMENT, spread)


def rounds(
    context: Context,
    subject: str,
    settings: dict[int, Settings],
    keys: Sequence[str],
    target: S3Objects,
) -> Iterator[list[Figure]]:
    """Copy everything at each round trip, in turn, with the settings of `replicate` for it.

    Each round begins with the other distance.
    """
    with ExitStack() as stack:
        functions = {trip: Replicate(settings[trip]) for trip in settings}
        for function in functions.values():
            stack.callback(function.close)
        for number in range(1 + context.scaled(TURNS, 2)):
            some = keys if number else keys[: max(START, len(keys) // 4)]
            order = sorted(settings, reverse=number % 2 == 1)
            found = {
                trip: copied(functions[trip], 2 * settings[trip].copies, some, target)
                for trip in order
            }
            rates = {trip: found[trip] for trip in settings}
            if number:
                reached = [f"{each.rate:.0f} MB/s at {trip} ms" for trip, each in rates.items()]
                context.progress(f"{subject}: {', '.join(reached)}")
                yield list(figures(subject, rates))


def figures(subject: str, rates: dict[int, Copied]) -> Iterator[Figure]:
    """The rates of one round, each beside the rate without a delay."""
    none, *far = rates
    yield Figure(subject, f"{none} ms", rates[none].rate, "MB/s")
    for trip in far:
        rival = Rival(f"{none} ms", rates[none].rate)
        rate = rates[trip].rate
        yield Figure(subject, f"{trip} ms", rate, "MB/s", rival, EACH, None, EACH_TARGET)
    for trip, each in rates.items():
        rival = Rival(f"{none} ms", rates[none].with_both_ends)
        yield Figure(subject, f"{trip} ms, with both ends", each.with_both_ends, "MB/s", rival)
        yield Figure(subject, f"cores that copy, {trip} ms", each.cores, "cores")


def fill(bucket: S3Objects, packs: int) -> list[str]:
    """Store packs and the objects that come with each; their keys, in the order of their events."""
    keys = []
    bucket.ensure_bucket()
    for _ in range(packs):
        for folder, size in zip(("packs/61000", *["alerts/lsst"] * 3), (PACK, *SMALL), strict=True):
            data = os.urandom(size)
            name = digest(data)
            keys.append(f"{folder}/{name}.parquet")
            bucket.put(keys[-1], data)
    return keys


def copied(function: Replicate, at_once: int, keys: Sequence[str], target: S3Objects) -> Copied:
    """Copy all keys, `at_once` at a time, then empty `target`."""
    moved: list[Moved] = []

    async def run() -> None:
        coming = iter(keys)

        async def work() -> None:
            for key in coming:
                begun = time.monotonic()
                await deliver(function, key)
                moved.append(Moved(begun, time.monotonic(), key))

        await asyncio.gather(*(work() for _ in range(at_once)))

    begin, spent = time.monotonic(), time.process_time()
    asyncio.run(run())
    seconds = time.monotonic() - begin
    cores = (time.process_time() - spent) / seconds
    found = list(target.list(""))
    sizes = {info.key: info.size for info in found}
    if sizes.keys() != set(keys):
        raise StampedeError(f"{len(found)} of {len(keys)} objects were copied")
    clear(target)
    rate = at_work(moved, sizes)
    return Copied(rate / 1e6, sum(sizes.values()) / seconds / 1e6, cores)


def at_work(moved: Sequence[Moved], sizes: Mapping[str, int]) -> float:
    """Bytes a second from when a part of the objects are copied until the last one begins.

    Of an object under way at either end a part of its bytes counts, by time: packs end in groups,
    and whether a group ends just before or after made two equal turns differ by 9 %.
    """
    first = sorted(each.done for each in moved)[len(moved) // START - 1]
    last = max(each.begun for each in moved)
    if last <= first:  # a few objects begin all at once
        last = max(each.done for each in moved)
    within = 0.0
    for begun, done, key in moved:
        overlap = min(done, last) - max(begun, first)
        within += sizes[key] * max(0.0, overlap) / (done - begun)
    return within / (last - first)


async def deliver(function: Replicate, key: str) -> None:
    """Copy one object by handling its event."""
    event = stored_event("stampede", "us-east-1", key)
    while True:
        try:
            return await function.handle(event)
        except Overloaded:
            await asyncio.sleep(0.05)


def joined(source: Settings, target: Settings) -> Settings:
    """Settings of a function that copies from one site to the other."""
    return source.model_copy(update=first_site(target).as_second_site())
