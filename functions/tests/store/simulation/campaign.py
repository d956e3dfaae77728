"""Plays seeds: each is one world, its actors and its faults, then peace, then the last checks."""

import hashlib
import random
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple, Self
from unittest.mock import patch

from stampede.errors import Damaged, StampedeError
from stampede.handlers.reconcile.checkpoints import rebuild
from stampede.store.compaction.compact import Policy, compact
from stampede.store.compaction.garbage_collection import unneeded_at_second_site
from stampede.store.integrity.unindexed_packs import PackIndexCheck, index
from stampede.store.parquet.checksums import FileMetaData, ParquetFile, open_verified
from stampede.store.replication.replica import Replica
from stampede.store.runs.schema import CUTOUTS
from stampede.store.tables.table import Table
from tests.store.simulation.actors import Processes, read_once, store_batch
from tests.store.simulation.contents import ALERTS
from tests.store.simulation.requests import Faults
from tests.store.simulation.scheduler import Request, Scheduler
from tests.store.simulation.world import PACKS, RUNS, Site, Violation, World

EPISODE = 1000  # requests of one seed
# Who takes part: each seed has one of these casts. Few actors meet each other more often.
CASTS = (
    ("writer", "compactor", "compactor", "sweeper", "sweeper"),
    ("writer", "compactor", "compactor", "compactor", "sweeper"),
    ("writer", "compactor", "compactor", "reader", "reader", "vandal"),
    ("writer", "compactor", "compactor", "compactor", "compactor", "reader"),
    ("writer", "writer", "compactor", "compactor", "reader", "reader"),
    ("writer", "compactor", "replicator", "replicator", "reconciler", "reader"),
    ("writer", "compactor", "replicator", "reconciler", "reader", "reader", "vandal"),
    ("writer", "compactor", "letters", "letters"),
    ("writer", "letters", "letters", "letters"),
    ("writer", "writer", "compactor", "compactor", "reader", "replicator", "reconciler", "letters"),
)
# Not one of `CASTS`: another cast there gives each seed another one.
ORPHANS = ("writer", "repeater", "repeater", "compactor", "orphans", "orphans", "reader")
MERGES = ("writer", "repeater", "compactor", "merger", "merger", "orphans", "reader")
BOTH_SITES = ("writer", "keeper", "keeper", "compactor", "replicator", "reconciler", "reader")
LARGE_BLOCK = 60  # bytes: about half of the blocks
INLINE_BYTES = len('{"alerts/0":[[1,10],[11,20]]}')
# How likely a request fails or its write repeats; and how likely a page of a listing lies.
FAILS, LIES = (0.0, 0.0, 0.003, 0.02), (0.0, 0.0, 0.02, 0.1)


@dataclass(frozen=True)
class Scenario:
    """What a seed plays: how many requests, by which actors, with which faults.

    None draws actors or faults by the seed.
    """

    steps: int = EPISODE
    actors: tuple[str, ...] | None = None
    faults: Faults | None = None


class Failure(NamedTuple):
    """A seed that broke the store's promise."""

    seed: int
    scenario: Scenario
    why: str
    trace: list[Request]

    def __str__(self) -> str:
        lines = [
            f"{row.step:6} {row.actor:12} {row.site:6} {row.operation:6} {row.key} {row.outcome}"
            for row in self.trace
        ]
        return "\n".join(
            [
                *_shortened(lines),
                "",
                f"seed {self.seed}: {self.why}",
                f"{self.scenario}",
                f"again: make simulate SEED={self.seed} STEPS=1",
            ]
        )


class Played(NamedTuple):
    """A run of one seed: its number of requests, and a digest of all of them."""

    steps: int
    digest: str
    failure: Failure | None


ANYTHING = Scenario()


def run(seed: int, scenario: Scenario = ANYTHING) -> Played:
    """Play one seed."""
    scheduler = Scheduler(seed)
    world = World(scheduler)
    faults = scenario.faults or _draw(scheduler.chance)
    kinds = scenario.actors or scheduler.chance.choice(CASTS)
    processes = Processes(world, faults)
    for number, kind in enumerate(kinds):
        processes.add(kind, number)
    why = ""
    with small_and_in_one_thread():
        try:
            scheduler.run(scenario.steps)
            _settle(world)
        except (Damaged, Violation) as violation:  # nothing is damaged here
            why = str(violation)
        finally:
            _forget(scheduler)
    text = "\n".join(map(str, scheduler.trace)) + str(sorted(world.contents))
    digest = hashlib.sha256(text.encode()).hexdigest()
    played = replace(scenario, actors=kinds, faults=faults)
    failure = Failure(seed, played, why, list(scheduler.trace)) if why else None
    return Played(scheduler.step, digest, failure)


def search(seed: int, steps: int, scenario: Scenario = ANYTHING) -> tuple[int, Failure | None]:
    """Play seeds from `seed` on until `steps` requests are made or one fails.

    Returns the number of requests, and the failure.
    """
    made = seeds = 0
    while made < steps:
        played = run(seed + seeds, scenario)
        made += played.steps
        seeds += 1
        if played.failure:
            return made, played.failure
    return made, None


def shrink(failure: Failure, tries: int = 20) -> Failure:
    """A failure with fewer actors, kinds of faults and requests, if chance finds one."""
    best = failure
    for simpler in _simpler(failure.scenario):
        candidate = simpler(best.scenario)
        if candidate == best.scenario:
            continue
        for seed in [best.seed, *range(best.seed + 1, best.seed + tries)]:
            found = run(seed, candidate).failure
            if found:
                best = found
                break
    return best


def _simpler(scenario: Scenario) -> Iterator[Callable[[Scenario], Scenario]]:
    def without(name: str) -> Callable[[Scenario], Scenario]:
        return lambda one: replace(one, faults=replace(one.faults or Faults(), **{name: 0.0}))

    def one_less(kind: str) -> Callable[[Scenario], Scenario]:
        def less(one: Scenario) -> Scenario:
            left = list(one.actors or ())
            if kind in left:
                left.remove(kind)
            return replace(one, actors=tuple(left)) if left else one

        return less

    def shorter(one: Scenario) -> Scenario:
        return replace(one, steps=max(10, one.steps // 2))

    yield from (without(name) for name in Faults.__dataclass_fields__)
    yield from (one_less(kind) for kind in scenario.actors or ())
    yield from [shorter] * 6


def _draw(chance: random.Random) -> Faults:
    lies = {"omit": chance.choice(LIES), "stale": chance.choice(LIES), "lost": chance.choice(LIES)}
    return Faults(*(chance.choice(FAILS) for _ in range(4)), **lies)


def _settle(world: World) -> None:
    """In peace everything comes to rest: one run at each site, both sites alike, nothing else."""
    scheduler = world.scheduler
    first, second, grace = world.first, world.second, timedelta(minutes=5)
    try:
        # The alert of one more batch makes sure that there is a run in the end.
        world.acknowledge(store_batch(world, first, [0]), [0])
        check = PackIndexCheck(first, CUTOUTS)
        for info in list(check.lacking(first.list(PACKS), _unreadable)):
            index(first, info.key)
        for _ in range(4):
            scheduler.now += timedelta(days=9000)
            compact(
                Table(first, CUTOUTS, threads=1), scheduler.now, Policy(grace=grace, major=True)
            )
            replica = Replica(first, second, 1)
            replica.catch_up()
            lacking = [info.key for info in replica.missing()]
            for key in list(unneeded_at_second_site(first, second, scheduler.now, grace)):
                second.delete(key)
        for site in (first, second):
            read_once(world, site, site, Table(site, CUTOUTS, threads=1))
            _rebuild(site)
    except StampedeError as error:
        raise Violation(f"in peace: {type(error).__name__}: {error}") from error
    if lacking:
        raise Violation(f"the second site still lacks {lacking}")
    here, there = world.first.view(), world.second.view()
    left = {key.rpartition("/")[2][:37] for key in world.first.keys(RUNS)}
    if left != here.runs or len(left) != 1:
        raise Violation(f"the runs {sorted(left)} are left in the end, live {here.runs}")
    if there.rows != here.rows or there.offsets != here.offsets:
        raise Violation("the sites differ in the end")
    if len(world.acknowledged) > ALERTS:
        raise Violation("more alerts than exist")


def _rebuild(site: Site) -> None:
    """Rebuilt from its runs, a site's checkpoint says what they say, and misses none."""
    list(rebuild(site, write=True))
    for table in rebuild(site, write=False):
        if table.wrong or table.faults or table.newer or (table.parts and not table.before):
            raise Violation(f"{site.name}: a checkpoint is not what the runs say: {table}")


def _forget(scheduler: Scheduler) -> None:
    for actor in scheduler.actors:
        actor.kill()


def _unreadable(key: str) -> None:
    raise Violation(f"{key} cannot be read")


@contextmanager
def small_and_in_one_thread() -> Iterator[None]:
    """Tiny row groups and footers, many checkpoints; who asks a thread for work does it at once."""
    places = ("store.tables.table", "store.replication.copy", "runtime.bounded_pool")
    patches: list[Any] = [patch(f"stampede.{place}.ThreadPoolExecutor", AtOnce) for place in places]
    small = {"GROUP_ROWS": 2, "SECTION_GROUPS": 2, "SMALL_GROUPS": 2}
    patches += [patch(f"stampede.store.runs.writer.{name}", size) for name, size in small.items()]
    patches.append(patch("stampede.store.compaction.night_plan.MOST_OBJECTS", 3))
    # Arrow would read ahead in threads of its own.
    patches.append(patch("stampede.store.integrity.verified_objects.open_verified", _opened))
    patches.append(patch("stampede.store.tables.checkpoint_files.MOST_NEW_PARTS", 2))
    # Two intervals: about half of the merged runs keep their offsets in a block.
    patches.append(patch("stampede.store.runs.packed_coverage.INLINE_BYTES", INLINE_BYTES))
    patches.append(patch("stampede.store.tables.offset_files.LARGE_BLOCK", LARGE_BLOCK))
    patches.append(patch("stampede.store.tables.checkpoint_files.LARGE", 2))
    patches.append(patch("stampede.store.tables.checkpoint_files.TOGETHER", 2))
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


def _opened(source: Any, metadata: FileMetaData, **_: bool) -> ParquetFile:
    return open_verified(source, metadata)


class AtOnce:
    """A `ThreadPoolExecutor` without threads."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def map(self, function: Callable[..., Any], *items: Any) -> Iterator[Any]:
        return iter([function(*arguments) for arguments in zip(*items, strict=False)])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pass


def _shortened(lines: list[str]) -> list[str]:
    """Digests of 32 digits as their first 6."""
    return [re.sub(r"([0-9a-f]{6})[0-9a-f]{26}", r"\1", line) for line in lines]
