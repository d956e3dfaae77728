"""What a route of the read service uses: one object, made once by `make_app`."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar

from starlette.requests import Request

from stampede.config.settings import Settings
from stampede.events.http.byte_budget import Budget
from stampede.lookup.ledger_cache import LedgerCache
from stampede.lookup.lookup import Lookup
from stampede.lookup.packs.async_images import QuickImages
from stampede.lookup.packs.pack_alerts import PackAlerts
from stampede.proofs.proof_reader import ProofReader
from stampede.read.access.access import Access
from stampede.read.errors import TooManyQueries
from stampede.read.summaries.known_histories import KnownHistories
from stampede.read.summaries.latest_alerts import LatestAlerts
from stampede.read.summaries.maintenance_state import UpkeepCache
from stampede.read.summaries.night_counts import NightCounts
from stampede.read.summaries.nights import NightAlerts, NightPacks
from stampede.read.tap.process import QueryProcesses
from stampede.read.web.chunks import chunk_limit
from stampede.store.objects.lru_cache import Cache
from stampede.store.objects.object_store import Objects
from stampede.store.s3.bucket import S3Objects

# These threads mostly wait for the store; the event loop itself answers from memory. With 2, 4
# and 8 threads the p99 of 8 clients is the same on a local Ceph; that of a site is further away.
SMALL_THREADS = 8
# During two queries of 15,000 ids the p99 of a cutout is 165 ms with 8 threads and 108 ms with 4,
# at the same rate of the queries (one round, in turn). During two of 1,000 ids it is 113 and 72 ms,
# at a rate 4 % lower with 4.
BULK_THREADS = 4
WAITING_QUERIES = 4
"""Queries in ADQL for each that may run: the others wait, or are being sent."""

P = ParamSpec("P")
T = TypeVar("T")


class ThreadRunner:
    """Runs functions that block in a thread pool."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, name)

    def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """The result of `function`, when a thread has run it."""
        loop = asyncio.get_running_loop()
        call = partial(copy_context().run, function, *args, **kwargs)  # with the request's warnings
        return loop.run_in_executor(self._pool, call)

    def close(self) -> None:
        """Cancel the calls that have not begun; do not wait for the others."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class QueryLimit:
    """Counts the large queries that are running. Used on the event loop alone, so no lock.

    Parameters
    ----------
    most
        Queries at once. One client may have half of them: another one finds a slot.
    """

    def __init__(self, most: int) -> None:
        self._most, self._most_of_one = most, max(1, most // 2)
        self._running: Counter[str | None] = Counter()

    def check(self, client: str | None) -> None:
        """Raise `TooManyQueries` at the limit. A client is None if clients are not limited."""
        running, own = self._running.total(), self._running[client]
        if running >= self._most:
            raise TooManyQueries(f"{running} large queries are running: try again later")
        if client is not None and own >= self._most_of_one:
            raise TooManyQueries(f"{own} large queries of this client are running: wait for one")

    def chunk_limit(self) -> int:
        """How many chunks each running query may hold now."""
        return chunk_limit(self._running.total())

    @contextmanager
    def slot(self, client: str | None) -> Iterator[None]:
        """Count one query while the context lasts. Raises `TooManyQueries` at the limit."""
        self.check(client)
        self._running[client] += 1
        try:
            yield
        finally:
            self._running[client] -= 1
            if not self._running[client]:
                del self._running[client]


@dataclass(frozen=True)
class ReadService:
    """Settings, lookups, threads and limits.

    `light_curves` has those that were sent last: the bytes and their tag, by all that decides them.
    `bulk_bytes` counts the ids that large queries hold. `parsing` is held while the ids of one
    query are parsed, which takes several times their bytes.

    Small queries and large ones have threads and tables of their own, so that a small query
    never waits behind a large one. The ledger has a thread too, which also finds the latest alerts
    and counts those of nights: its first reading takes a request for each object of dead letters.
    """

    settings: Settings
    access: Access
    lookup: Lookup
    light_curves: Cache
    bulk_lookup: Lookup
    quick_images: QuickImages
    run: ThreadRunner
    run_bulk: ThreadRunner
    bulk_limit: QueryLimit
    bulk_bytes: Budget
    parsing: asyncio.Lock
    ledger: LedgerCache
    histories: KnownHistories
    proofs: ProofReader
    upkeep: UpkeepCache
    pack_alerts: PackAlerts
    latest: LatestAlerts
    night_counts: NightCounts
    night_alerts: NightAlerts
    run_ledger: ThreadRunner
    run_upkeep: ThreadRunner
    queries: QueryProcesses
    run_query: ThreadRunner
    run_jobs: ThreadRunner
    query_limit: QueryLimit

    @classmethod
    def over(cls, objects: Objects, settings: Settings) -> "ReadService":
        """The service over a store."""
        lookup, pack_alerts = Lookup(objects, settings), PackAlerts(objects)
        night_packs = NightPacks(objects, lookup.rights)
        tables = {
            table.spec.name: table for table in (lookup.cutouts.table, lookup.detections.table)
        }
        gets = objects.async_gets() if isinstance(objects, S3Objects) else None
        return cls(
            settings,
            Access.of(settings),
            lookup,
            Cache(settings.cache_bytes // 50),
            Lookup(objects, settings, relist_on_miss=False),
            QuickImages(gets, lookup.images.tails),
            ThreadRunner(SMALL_THREADS, "small"),
            ThreadRunner(BULK_THREADS, "bulk"),
            QueryLimit(settings.bulk_queries),
            Budget(settings.bulk_bytes),
            asyncio.Lock(),
            LedgerCache(lookup.objects, tables, settings),
            KnownHistories(objects),
            ProofReader(objects),
            UpkeepCache(lookup, settings),
            pack_alerts,
            LatestAlerts(lookup, night_packs, pack_alerts),
            NightCounts(objects, night_packs, pack_alerts),
            NightAlerts(night_packs, pack_alerts),
            ThreadRunner(1, "ledger"),
            ThreadRunner(1, "upkeep"),
            QueryProcesses(settings.tap_memory, settings.tap_scanned_rows),
            ThreadRunner(max(1, settings.tap_queries), "tap"),
            ThreadRunner(1, "tap-job"),
            QueryLimit(WAITING_QUERIES * settings.tap_queries),
        )

    async def close(self) -> None:
        """Stop the threads, and end the connections of the event loop."""
        await self.quick_images.close()
        runners = self.run, self.run_bulk, self.run_ledger, self.run_upkeep
        for runner in (*runners, self.run_query, self.run_jobs):
            runner.close()
        self.queries.close()
        for lookup in (self.lookup, self.bulk_lookup):
            lookup.close()


def service_of(request: Request) -> ReadService:
    """The service of the application that received the request."""
    service: ReadService = request.app.state.service
    return service
