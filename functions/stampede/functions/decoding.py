"""How the functions that take alerts decode them, inside a worker process."""

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.alerts.batch_parts import Guards
from stampede.alerts.container import Bytes
from stampede.alerts.decoder import Decoder
from stampede.alerts.framing import Framing
from stampede.clock import now_mjd
from stampede.errors import Overloaded
from stampede.events.batching import Outcome
from stampede.events.schema_registry import SchemaRegistry
from stampede.events.spool import SpoolFile
from stampede.events.worker import Batch, BatchStorer, StoredBatch, deadline
from stampede.settings import Settings

# Bytes decoded per second of CPU: the usual rate is 250 MB/s. A batch may take ten times as long
# as usual; then it is decoded with care, and may take fifty times as long.
SLOW, SLOWEST = 25e6, 5e6
CAREFUL = 4  # times the seconds that a batch decoded with care may take
SECRET_BYTES = 12


def make_batch_decoder(settings: Settings, now_mjd: Callable[[], float] = now_mjd) -> BatchDecoder:
    """A decoder that the kernel kills, with its worker, when it overruns a deadline.

    `now_mjd` returns the time, MJD TAI, from which the setting `future_days` counts.
    """
    registry = SchemaRegistry(settings.schema_registry).schema if settings.schema_registry else None
    seconds = settings.decode_seconds
    return BatchDecoder(
        Framing(settings.max_alert_bytes, registry),
        Decoder(DecoderFile(settings.spool)),
        latest_mjd=lambda: now_mjd() + settings.future_days,
        secret=os.urandom(SECRET_BYTES),
        guards=Guards(
            batch=lambda size: deadline(seconds + size / SLOW),
            careful=lambda size: deadline(CAREFUL * seconds + size / SLOWEST),
            message=lambda size: deadline(seconds + size / SLOWEST),
        ),
        programids=frozenset(map(int, settings.ztf_programids.split(","))),
        most_bytes=settings.batch_bytes,
    )


def in_parts(store: BatchStorer, settings: Settings) -> BatchStorer:
    """What stores a batch, by one that stores its first messages: those that it has outcomes for.

    So memory is bounded by the setting `batch_bytes`, whatever messages decompress to, and so is
    that of what reads a pack as a whole. What is not begun after half of `flush_seconds` is to be
    sent again: otherwise the worker might be killed each time before it has answered for any part.
    """

    def store_batch(batch: Batch) -> StoredBatch:
        outcomes: list[Outcome] = []
        latest = time.monotonic() + settings.flush_seconds / 2
        seconds, size = Counter[str](), 0
        while len(outcomes) < len(batch.messages):
            part = store(batch.after(len(outcomes)))
            outcomes += part.outcomes
            seconds.update(part.seconds)
            size += part.stored_bytes
            if time.monotonic() > latest:
                late = Overloaded("the batch takes too long: its first alerts are stored")
                outcomes += [late] * (len(batch.messages) - len(outcomes))
        return StoredBatch(outcomes, dict(seconds), size)

    return store_batch


class DecoderFile(SpoolFile):
    """A `SpoolFile` that DataFusion reads."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, ".avro")

    def write(self, pieces: Sequence[Bytes]) -> str:
        """Replace the content; return the path. Raises `Overloaded` if there is no room."""
        try:
            return super().write(pieces)
        except OSError as error:
            reason = f"no room in the spool {self.directory}: {error.strerror}"
            raise Overloaded(reason) from error
