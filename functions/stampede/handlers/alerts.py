"""alerts: does what `cutouts` and `lightcurves` do, and decodes each alert once for both.

It is for alerts that come straight from Kafka: one process takes each alert once, and stores it in
both tables. An event that is sent to ``/cutouts`` or ``/detections`` is for that table alone.
"""

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context

from stampede.alerts.batch_parts import DecodedAlerts
from stampede.config.settings import Settings
from stampede.events.delivery.response import Verdict, judge
from stampede.events.workers.batching import Outcome
from stampede.events.workers.worker import Batch, BatchStorer, StoredBatch
from stampede.handlers import cutouts, lightcurves
from stampede.handlers.decoding import (
    BLAMED,
    Write,
    Written,
    blaming,
    in_parts,
    make_batch_decoder,
)
from stampede.runtime.clock import Stopwatch
from stampede.store.objects.store_clock import StoreClock
from stampede.store.open import open_objects
from stampede.store.runs.schema import CUTOUTS, DETECTIONS


def make_batch_storer(settings: Settings) -> BatchStorer:
    """Connect to the store and return what stores a batch."""
    storers = {
        "/": _make_storer_of_both(settings),
        f"/{CUTOUTS.name}": cutouts.make_batch_storer(settings),
        f"/{DETECTIONS.name}": lightcurves.make_batch_storer(settings),
    }

    def store_batch(batch: Batch) -> StoredBatch:
        numbers: dict[str, list[int]] = {}
        for number, path in enumerate(batch.paths or ["/"] * len(batch.messages)):
            numbers.setdefault(path, []).append(number)
        if len(numbers) == 1:
            return storers[next(iter(numbers))](batch)
        outcomes: list[Outcome] = [None] * len(batch.messages)
        seconds, size = Counter[str](), 0
        for path, chosen in numbers.items():
            stored = storers[path](batch.chosen(chosen))
            for number, outcome in zip(chosen, stored.outcomes, strict=True):
                outcomes[number] = outcome
            seconds.update(stored.seconds)
            size += stored.stored_bytes
        return StoredBatch(outcomes, dict(seconds), size)

    return store_batch


def _make_storer_of_both(settings: Settings) -> BatchStorer:
    objects = open_objects(settings)
    clock = StoreClock(objects)
    decoder = make_batch_decoder(settings, clock.now_mjd)
    write_cutouts = cutouts.make_write(objects)
    write_points = lightcurves.make_write(objects, settings)

    def store_batch(batch: Batch) -> StoredBatch:
        watch = Stopwatch()
        clock.refresh()  # not while decoding: there, a store that is slow would cost the worker
        decoded = decoder.alerts(batch.messages, batch.isolation, batch.suspect)
        watch.lap("decode")
        images, points = _write_both(batch, decoded, write_cutouts, write_points)
        outcomes = [
            combined({CUTOUTS.name: of_images, DETECTIONS.name: of_points})
            for of_images, of_points in zip(
                decoded.cutouts.faults, decoded.detections.faults, strict=True
            )
        ]
        seconds = watch.laps | images.seconds | points.seconds
        return StoredBatch(outcomes, seconds, images.stored_bytes + points.stored_bytes)

    return blaming(in_parts(store_batch, settings), settings)


def _write_both(
    batch: Batch, decoded: DecodedAlerts, write_cutouts: Write, write_points: Write
) -> tuple[Written, Written]:
    """Write both at the same time: each waits for the store more than it computes.

    Raises what either raises, when both have ended; first a failure that is no alert's fault.
    """
    with ThreadPoolExecutor(2, "write") as threads:
        images = threads.submit(copy_context().run, write_cutouts, batch, decoded.cutouts)
        points = threads.submit(copy_context().run, write_points, batch, decoded.detections)
        wait([images, points])
    if errors := [error for each in (images, points) if (error := each.exception())]:
        raise min(errors, key=_is_blamed)
    return images.result(), points.result()


def _is_blamed(error: BaseException) -> bool:
    return isinstance(error, BLAMED) and not isinstance(error, MemoryError)


def combined(by_table: Mapping[str, Outcome]) -> Outcome:
    """The outcome of an alert that has one for each table.

    An error that may pass comes before one that stays: the alert is sent again then.
    """
    errors = {table: error for table, error in by_table.items() if error is not None}
    if not errors:
        return None
    worst = max(errors.values(), key=lambda error: judge(error.status) is not Verdict.REFUSED)
    if len(errors) < len(by_table):
        return worst.of_tables(errors)
    reasons = dict.fromkeys(error.message for error in errors.values())
    return worst if len(reasons) == 1 else type(worst)("; ".join(reasons))
