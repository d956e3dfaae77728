"""cutouts: stores the images of alerts; one pack holds those of many alerts.

Order matters: the pack is durable before the index points into it, and the index is durable before
the function accepts the event. A crash in between leaves a pack that nothing points to, and the
sender sends the event again.
"""

from stampede.clock import Stopwatch
from stampede.events.worker import Batch, BatchStorer, StoredBatch
from stampede.functions.decoding import in_parts, make_batch_decoder
from stampede.settings import Settings
from stampede.store.open import open_objects
from stampede.store.packs import write_pack
from stampede.store.schema import CUTOUTS
from stampede.store.store_clock import StoreClock
from stampede.store.tables import Table


def make_batch_storer(settings: Settings) -> BatchStorer:
    """Connect to the store and return what stores a batch."""
    objects = open_objects(settings)
    table = Table(objects, CUTOUTS)
    clock = StoreClock(objects)
    decoder = make_batch_decoder(settings, clock.now_mjd)

    def store_batch(batch: Batch) -> StoredBatch:
        watch = Stopwatch()
        clock.refresh()  # not while decoding: there, a store that is slow would cost the worker
        decoded = decoder.cutouts(batch.messages, batch.care, batch.suspect)
        watch.lap("decode")
        coverage = batch.coverage(decoded.faults)
        pack = write_pack(decoded.rows, coverage)
        watch.lap("pack")
        stored = 0
        if decoded.rows.num_rows:
            objects.put(pack.key, pack.data, pack.sha256)
            watch.lap("put")
            table.append(pack.locations, coverage)
            watch.lap("index")
            stored = len(pack.data)
        return StoredBatch(decoded.faults, watch.laps, stored)

    return in_parts(store_batch, settings)
