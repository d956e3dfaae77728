"""The functions as ASGI apps: which door each has and what stands behind it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any

from starlette.types import ASGIApp

from stampede import metrics
from stampede.errors import SetupError
from stampede.events.batching import Batcher, Outcome
from stampede.events.event import Event
from stampede.events.event_endpoint import EventEndpoint
from stampede.settings import Settings
from stampede.store.open import open_objects

# Being too large is one reason to be a dead letter: one may have any size that Kafka gives.
LETTER_BYTES = 64 << 20


def make_app(name: str, settings: Settings) -> ASGIApp:
    """The ASGI app of a function.

    Raises `SetupError` where there is none of that name, or no such store.
    """
    if name not in APPS:
        raise SetupError(f"no function {name!r}: there are {', '.join(sorted(APPS))}")
    open_objects(settings)  # nothing is asked of it yet: so that a wrong address is told at once
    return APPS[name](name, settings)


def alerts_app(name: str, settings: Settings) -> EventEndpoint:
    """`cutouts` and `lightcurves`: alerts gathered into batches, flushed by workers."""
    # Imported by name, since only the workers need what these modules import.
    module = import_module(f"stampede.functions.{name}")

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        from stampede.events.workers import Workers

        workers = Workers(name, module.make_flusher, settings)
        async with batching(name, settings, workers.flush, settings.workers, door):
            yield
        await workers.close()

    door = BatchingEndpoint(name, settings.max_alert_bytes, lifespan)
    return door


def deadletters_app(name: str, settings: Settings) -> EventEndpoint:
    """`deadletters`: letters gathered into batches, written by a thread."""
    from stampede.functions.deadletters import DeadLetters

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        letters = DeadLetters(open_objects(settings))
        async with batching(name, settings, letters.flush, 1, door):
            yield

    door = BatchingEndpoint(name, max(LETTER_BYTES, 2 * settings.max_alert_bytes), lifespan)
    return door


def thumbnails_app(name: str, settings: Settings) -> EventEndpoint:
    """`thumbnails`: each stored pack's images drawn, by a thread."""
    from stampede.functions.thumbnails import Thumbnails

    return EventEndpoint(name, Thumbnails(settings).handle, settings.max_alert_bytes)


def compact_app(name: str, settings: Settings) -> EventEndpoint:
    """`compact`: any event makes one pass over the tables."""
    from stampede.functions.compact import compact_tables

    return passing(name, settings, partial(compact_tables, settings))


def replicate_app(name: str, settings: Settings) -> EventEndpoint:
    """`replicate`: each stored object copied to the second site, by threads."""
    from stampede.functions.replicate import Replicate

    replicate = Replicate(settings)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(replicate.close)

    return EventEndpoint(name, replicate.handle, settings.max_alert_bytes, lifespan)


def reconcile_app(name: str, settings: Settings) -> EventEndpoint:
    """`reconcile`: any event makes one pass over the stores."""
    from stampede.functions.reconcile import Reconciler

    return passing(name, settings, Reconciler(settings).run)


def read_app(_: str, settings: Settings) -> ASGIApp:
    """`read`: cutouts and light curves over HTTP."""
    from stampede.read.app import make_app as make

    return make(settings)


def notifications_app(name: str, settings: Settings) -> EventEndpoint:
    """`notifications`: from the S3 endpoint to the Broker."""
    from stampede.events.notification_relay import notifications_app as make

    return make(name, settings)


def broker_app(name: str, settings: Settings) -> EventEndpoint:
    """`broker`: from the relay to the functions, by Triggers; where no Knative Broker is."""
    from stampede.events.broker import broker_app as make

    return make(name, settings)


APPS: dict[str, Callable[[str, Settings], ASGIApp]] = {
    "cutouts": alerts_app,
    "lightcurves": alerts_app,
    "deadletters": deadletters_app,
    "thumbnails": thumbnails_app,
    "compact": compact_app,
    "replicate": replicate_app,
    "reconcile": reconcile_app,
    "notifications": notifications_app,
    "broker": broker_app,
    "read": read_app,
}


def passing(name: str, settings: Settings, once: Callable[[], object]) -> EventEndpoint:
    """A door behind which an event makes one pass, in a thread; a second meanwhile is harmless."""
    busy = asyncio.Lock()

    async def handle(event: Event) -> Outcome:
        if not busy.locked():
            async with busy:
                await asyncio.to_thread(once)
        return None

    return EventEndpoint(name, handle, settings.max_alert_bytes)


class BatchingEndpoint(EventEndpoint):
    """A door behind which events are gathered into batches."""

    batcher: Batcher

    def __init__(self, name: str, limit: int, lifespan: Callable) -> None:
        super().__init__(name, self._gather, limit, lifespan)

    async def _gather(self, event: Event) -> Outcome:
        return await self.batcher.add(event)


@asynccontextmanager
async def batching(
    name: str, settings: Settings, flush: Callable, lanes: int, door: BatchingEndpoint
) -> AsyncIterator[None]:
    """Open the door; at the end, flush what waits behind it."""
    door.batcher = batcher = Batcher(
        flush,
        lanes=lanes,
        most_events=settings.batch_alerts,
        most_bytes=settings.batch_bytes,
        held_bytes=settings.queue_bytes,
        linger=settings.linger_ms / 1000,
    )
    metrics.HELD_BYTES.labels(name).set_function(lambda: batcher.held)
    try:
        yield
    finally:
        await batcher.close()
