"""The functions as ASGI apps, by name.

What an app needs is imported when the app is made: a function must start from zero fast.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from stampede.config.settings import Settings
from stampede.errors import NotFound, SetupError, StampedeError
from stampede.events import BOTH_TABLES, tables_of
from stampede.store.open import first_site, open_objects, prepare_writes

if TYPE_CHECKING:
    from stampede.events.cloudevents.event import Event
    from stampede.events.http.endpoint import EventEndpoint, Handle
    from stampede.events.workers.batching import Batcher, StoreBatch
    from stampede.events.workers.worker import BatchStorer

# A dead letter may be as large as Kafka allows, since size is one reason for a dead letter.
DEAD_LETTER_BYTES = 64 << 20


def make_app(name: str, settings: Settings) -> ASGIApp:
    """The ASGI app of a function.

    Raises
    ------
    SetupError
        There is no function of that name, or a setting cannot work.
    """
    if name not in APPS:
        raise SetupError(f"no function {name!r}: there are {', '.join(sorted(APPS))}")
    open_objects(settings)  # sends no request; raises if the store's address is wrong
    return APPS[name](name, settings)


def alerts_app(name: str, settings: Settings) -> "EventEndpoint":
    """`cutouts`, `lightcurves` or both in one: worker processes store alerts in batches."""
    from stampede.events.http.endpoint import EventEndpoint
    from stampede.events.workers.alert_age import observing_age
    from stampede.events.workers.pool import Workers

    workers = Workers(name, partial(batch_storer, name), settings)
    batcher = make_batcher(settings, workers.store_batch, concurrency=settings.workers)
    add = observing_age(name, batcher.add)
    if name == BOTH_TABLES:
        add = of_tables(name, add)
    return EventEndpoint.of(name, add, settings, [workers, batcher])


def of_tables(name: str, handle: "Handle") -> "Handle":
    """`handle` for events that are sent to ``/``, or to ``/TABLE`` for one table alone."""
    paths = {"/", *(f"/{table}" for table in tables_of(name))}

    async def handle_known(event: "Event") -> StampedeError | None:
        if event.path not in paths:
            return NotFound(
                f"nothing takes events at {event.path}, but at {', '.join(sorted(paths))}"
            )
        return await handle(event)

    return handle_known


def batch_storer(name: str, settings: Settings) -> "BatchStorer":
    """What stores a batch of a function that takes alerts, made in a worker.

    Only workers import what decodes alerts: that takes 65 MB, which the app's process does not need
    (docs/adr/0044-cpu-of-one-cutout.md).
    """
    made: BatchStorer = import_module(f"stampede.handlers.{name}").make_batch_storer(settings)
    # The first batch must not wait for these two, nor count them as CPU of its decoding.
    import_module("pyarrow.compute")
    prepare_writes(first_site(settings))
    return made


def deadletters_app(name: str, settings: Settings) -> "EventEndpoint":
    """`deadletters`: a thread stores dead letters in batches."""
    from stampede.events.http.endpoint import EventEndpoint
    from stampede.handlers.deadletters import DeadLetters

    store_batch = DeadLetters(open_objects(settings)).store_batch
    batcher = make_batcher(settings, store_batch, concurrency=1)
    limit = max(DEAD_LETTER_BYTES, 2 * settings.max_alert_bytes)
    return EventEndpoint.of(name, batcher.add, settings, [batcher], limit=limit)


def thumbnails_app(name: str, settings: Settings) -> "EventEndpoint":
    """`thumbnails`: a thread draws the images of each stored pack."""
    from stampede.events.http.endpoint import EventEndpoint
    from stampede.handlers.thumbnails.handler import Thumbnails

    return EventEndpoint.of(name, Thumbnails(settings).handle, settings)


def compact_app(name: str, settings: Settings) -> "EventEndpoint":
    """`compact`: an event starts a pass over the tables."""
    from stampede.handlers.compact import Compactor

    return pass_app(name, settings, Compactor(settings).make_pass)


def replicate_app(name: str, settings: Settings) -> "EventEndpoint":
    """`replicate`: threads copy each stored object to the second site."""
    from stampede.events.http.endpoint import EventEndpoint
    from stampede.handlers.replicate import Replicate

    replicate = Replicate(settings)
    return EventEndpoint.of(name, replicate.handle, settings, [replicate])


def reconcile_app(name: str, settings: Settings) -> "EventEndpoint":
    """`reconcile`: an event starts a pass over the stores."""
    from stampede.handlers.reconcile.reconciler import Reconciler

    return pass_app(
        name, settings, partial(Reconciler(settings).run, seconds=settings.reconcile_seconds)
    )


def scrub_app(name: str, settings: Settings) -> "EventEndpoint":
    """`scrub`: an event starts a pass that reads a share of every site."""
    from stampede.handlers.scrub.handler import scrub_sites

    return pass_app(name, settings, partial(scrub_sites, settings))


def publish_app(name: str, settings: Settings) -> "EventEndpoint":
    """`publish`: an event starts a pass that brings the HATS catalogue up to date."""
    from stampede.handlers.hats.catalogue import open_catalogue, publish_pass

    open_catalogue(settings, settings.catalogue)  # sends no request; raises if it is wrong
    return pass_app(name, settings, partial(publish_pass, settings))


def read_app(_: str, settings: Settings) -> ASGIApp:
    """`read`: cutouts and light curves over HTTP."""
    from stampede.read import app

    return app.make_app(settings)


def notifications_app(name: str, settings: Settings) -> "EventEndpoint":
    """`notifications`: sends bucket notifications of the S3 endpoint to the Broker."""
    from stampede.events.broker import notification_relay

    return notification_relay.notifications_app(name, settings)


def broker_app(name: str, settings: Settings) -> "EventEndpoint":
    """`broker`: sends events to functions by Triggers, where there is no Knative Broker."""
    from stampede.events.broker import broker

    return broker.broker_app(name, settings)


APPS: dict[str, Callable[[str, Settings], ASGIApp]] = {
    "alerts": alerts_app,
    "cutouts": alerts_app,
    "lightcurves": alerts_app,
    "deadletters": deadletters_app,
    "thumbnails": thumbnails_app,
    "compact": compact_app,
    "replicate": replicate_app,
    "reconcile": reconcile_app,
    "scrub": scrub_app,
    "publish": publish_app,
    "notifications": notifications_app,
    "broker": broker_app,
    "read": read_app,
}


def pass_app(name: str, settings: Settings, run_pass: Callable[[], object]) -> "EventEndpoint":
    """A function whose events start a pass in a thread.

    An event is answered after the pass. An event that arrives during a pass starts none, and is
    answered at once.
    """
    from stampede.events.http.endpoint import EventEndpoint

    running = asyncio.Lock()

    async def handle(_: "Event") -> None:
        if not running.locked():
            async with running:
                await asyncio.to_thread(run_pass)

    return EventEndpoint.of(name, handle, settings)


def make_batcher(settings: Settings, store_batch: "StoreBatch", concurrency: int) -> "Batcher":
    """A function's batcher."""
    from stampede.events.workers.batching import Batcher

    return Batcher(
        store_batch,
        concurrency=concurrency,
        most_events=settings.batch_alerts,
        most_bytes=settings.batch_bytes,
        linger=settings.linger_ms / 1000,
        most_linger=settings.most_linger_ms / 1000,
    )
