"""cutouts: stores the images of alerts, those of many alerts in one pack.

Order matters: the pack is durable before the index points into it, and the index is durable before
the function accepts the event. A crash in between leaves a pack that nothing points to, and the
sender sends the event again.
"""

from stampede.clock import Stopwatch
from stampede.events.event import coverage_of
from stampede.events.worker import Batch, Flushed, Flusher
from stampede.functions.decoding import make_reader
from stampede.settings import Settings
from stampede.store.open import open_objects
from stampede.store.packs import write_pack
from stampede.store.tables import CUTOUTS, Table


def make_flusher(settings: Settings) -> Flusher:
    """Connect to the store and return what flushes a batch."""
    objects = open_objects(settings)
    table = Table(objects, CUTOUTS)
    reader = make_reader(settings)

    def flush(batch: Batch) -> Flushed:
        watch = Stopwatch()
        decoded = reader.cutouts(batch.messages, batch.careful)
        watch.lap("decode")
        coverage = coverage_of(batch.stored(decoded.faults))
        pack = write_pack(decoded.rows, coverage)
        watch.lap("pack")
        stored = 0
        if decoded.rows.num_rows:
            objects.put(pack.key, pack.data, pack.sha256)
            watch.lap("put")
            table.append(pack.places, coverage)
            watch.lap("index")
            stored = len(pack.data)
        return Flushed(decoded.faults, watch.laps, stored)

    return flush
