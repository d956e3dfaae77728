"""lightcurves: turns alerts into points of light curves and adds them to the table.

It reads and overwrites nothing: each batch adds one small sorted run. The fields of an alert that
have no column in the table are stored beside it, under the survey's names, and so is the alert as
it came, its packet, where its object is, and which body of the solar system it shows: before the
points, so that an offset which `detections` holds has all of them.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from stampede.alerts import healpix
from stampede.alerts.batch_parts import Decoded
from stampede.alerts.positions import positions_of
from stampede.config.settings import Settings
from stampede.events.workers.worker import Batch, BatchStorer, StoredBatch
from stampede.handlers.decoding import Write, Written, blaming, in_parts, make_batch_decoder
from stampede.handlers.packet_storer import store_packets
from stampede.runtime.clock import Stopwatch
from stampede.store.objects.object_store import Objects
from stampede.store.objects.store_clock import StoreClock
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.packs.raw_alerts import write_raw
from stampede.store.runs.schema import DETECTIONS, MOVING, PACKETS, POSITIONS
from stampede.store.tables.table import Table


def make_batch_storer(settings: Settings) -> BatchStorer:
    """Connect to the store and return what stores a batch."""
    objects = open_objects(settings)
    clock = StoreClock(objects)
    decoder = make_batch_decoder(settings, clock.now_mjd)
    write = make_write(objects, settings)

    def store_batch(batch: Batch) -> StoredBatch:
        watch = Stopwatch()
        clock.refresh()  # not while decoding: there, a store that is slow would cost the worker
        decoded = decoder.detections(batch.messages, batch.isolation, batch.suspect)
        watch.lap("decode")
        written = write(batch, decoded)
        return StoredBatch(decoded.faults, watch.laps | written.seconds, written.stored_bytes)

    return blaming(in_parts(store_batch, settings), settings)


def make_write(objects: Objects, settings: Settings) -> Write:
    """What writes the points of a batch, and its packets before them."""
    healpix.load()  # while no alert waits for it
    table = Table(objects, DETECTIONS)
    packets = Table(objects, PACKETS, threads=1) if settings.packet_days != 0 else None
    positions = Table(objects, POSITIONS, threads=1)
    moving = Table(objects, MOVING, threads=1)

    def write(batch: Batch, decoded: Decoded) -> Written:
        watch = Stopwatch()
        files = [write_raw(alerts) for alerts in decoded.raw]
        stored = sum(len(data) for _, data, _ in files)
        watch.lap("raw")
        coverage = batch.coverage(decoded.faults)
        with ThreadPoolExecutor(1, "raw") as thread:  # neither waits for the other, points for both
            puts: list[Future[Any]] = [thread.submit(objects.put, *file) for file in files]
            if decoded.rows.num_rows:
                puts.append(thread.submit(_append_positions, positions, decoded.rows, coverage))
                puts.append(thread.submit(moving.append, decoded.moving, coverage))
            try:
                if packets:
                    stored += store_packets(packets, batch, decoded.groups)
                for put in puts:
                    put.result()
            except BaseException:
                thread.shutdown(cancel_futures=True)  # a store that is down would refuse each
                raise
        watch.lap("packets")
        if decoded.rows.num_rows:
            table.append(decoded.rows, coverage)
        watch.lap("run")
        return Written(watch.laps, stored)

    return write


def _append_positions(table: Table, points: pa.Table, coverage: Coverage) -> None:
    table.append(positions_of(points), coverage)
