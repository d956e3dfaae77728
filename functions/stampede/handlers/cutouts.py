"""cutouts: stores the images of alerts; a pack holds those of one night and one programme.

Order matters: the pack is durable before the index points into it, and the index is durable before
the function accepts the event. A crash in between leaves a pack that nothing points to, and the
sender sends the event again.
"""

import pyarrow as pa

from stampede.alerts.batch_parts import Decoded
from stampede.config.settings import Settings
from stampede.events.workers.worker import Batch, BatchStorer, StoredBatch
from stampede.handlers.decoding import Write, Written, blaming, in_parts, make_batch_decoder
from stampede.runtime.clock import Stopwatch
from stampede.store.objects.object_store import Objects
from stampede.store.objects.store_clock import StoreClock
from stampede.store.open import open_objects
from stampede.store.packs.pack import write_pack
from stampede.store.runs.schema import CUTOUTS
from stampede.store.tables.table import Table


def make_batch_storer(settings: Settings) -> BatchStorer:
    """Connect to the store and return what stores a batch."""
    objects = open_objects(settings)
    clock = StoreClock(objects)
    decoder = make_batch_decoder(settings, clock.now_mjd)
    write = make_write(objects)

    def store_batch(batch: Batch) -> StoredBatch:
        watch = Stopwatch()
        clock.refresh()  # not while decoding: there, a store that is slow would cost the worker
        decoded = decoder.cutouts(batch.messages, batch.isolation, batch.suspect)
        watch.lap("decode")
        written = write(batch, decoded)
        return StoredBatch(decoded.faults, watch.laps | written.seconds, written.stored_bytes)

    return blaming(in_parts(store_batch, settings), settings)


def make_write(objects: Objects) -> Write:
    """What writes the cutouts of a batch."""
    table = Table(objects, CUTOUTS)

    def write(batch: Batch, decoded: Decoded) -> Written:
        watch = Stopwatch()
        coverage = batch.coverage(decoded.faults)
        stored, locations = 0, []
        for part in decoded.by_night_and_programme():
            held = batch.coverage_of(part.messages)
            pack = write_pack(part.rows, held, programids=part.programids)
            watch.lap("pack")
            objects.put(pack.key, pack.data, pack.sha256)
            watch.lap("put")
            locations.append(pack.locations)
            stored += len(pack.data)
        if locations:
            table.append(pa.concat_tables(locations), coverage)
            watch.lap("index")
        return Written(watch.laps, stored)

    return write
