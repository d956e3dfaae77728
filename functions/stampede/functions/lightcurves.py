"""lightcurves: turns alerts into points of light curves and adds them to the table.

It reads and overwrites nothing: each batch adds one small sorted run. The fields of an alert that
are no columns of a point are stored beside the table, under the survey's own names.
"""

from stampede.clock import Stopwatch
from stampede.events.event import coverage_of
from stampede.events.worker import Batch, Flushed, Flusher
from stampede.functions.decoding import make_reader
from stampede.settings import Settings
from stampede.store.open import open_objects
from stampede.store.raw import write_raw
from stampede.store.tables import DETECTIONS, Table


def make_flusher(settings: Settings) -> Flusher:
    """Connect to the store and return what flushes a batch."""
    objects = open_objects(settings)
    table = Table(objects, DETECTIONS)
    reader = make_reader(settings)

    def flush(batch: Batch) -> Flushed:
        watch = Stopwatch()
        decoded = reader.detections(batch.messages, batch.careful)
        watch.lap("decode")
        stored = 0
        for alerts in decoded.raw:
            key, data = write_raw(alerts)
            objects.put(key, data)
            stored += len(data)
        watch.lap("raw")
        if decoded.rows.num_rows:
            table.append(decoded.rows, coverage_of(batch.stored(decoded.faults)))
        watch.lap("run")
        return Flushed(decoded.faults, watch.laps, stored)

    return flush
