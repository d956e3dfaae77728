"""How the functions that take alerts decode them, inside a worker process."""

import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.alerts.batch_parts import Decoded, Guards
from stampede.alerts.decoder import Decoder
from stampede.alerts.framing import Framing
from stampede.config.settings import Settings
from stampede.errors import Overloaded, Unusable
from stampede.events.kafka.schema_registry import schemas_of
from stampede.events.workers.batching import Outcome
from stampede.events.workers.spool import SpoolFile
from stampede.events.workers.worker import Batch, BatchStorer, StoredBatch, deadline
from stampede.runtime.clock import now_mjd
from stampede.runtime.decompression import Bytes

# Bytes decoded per second of CPU: the usual rate is 250 MB/s. A batch may take ten times as long
# as usual; then it is decoded in isolation, and may take fifty times as long.
SLOW, SLOWEST = 25e6, 5e6
ISOLATED = 4  # times the seconds that a batch decoded in isolation may take
SECRET_BYTES = 12
# What code raises that meets a value it cannot take. Not OSError and RuntimeError: a full disk, no
# more threads.
BLAMED = (
    *(ValueError, TypeError, AttributeError, LookupError, ArithmeticError),
    *(NotImplementedError, pa.ArrowException),
)


class Written(NamedTuple):
    """What was written of a decoded batch: seconds by stage, and bytes put."""

    seconds: dict[str, float]
    stored_bytes: int


Write = Callable[[Batch, Decoded], Written]
"""Makes a decoded batch durable in one table, and in what goes before it. Raises `StoreDown`."""


def make_batch_decoder(settings: Settings, now_mjd: Callable[[], float] = now_mjd) -> BatchDecoder:
    """A decoder that the kernel kills, with its worker, when it overruns a deadline.

    `now_mjd` returns the time, MJD TAI, from which the setting `future_days` counts.
    """
    seconds = settings.decode_seconds
    guards = Guards(
        batch=lambda size: deadline(seconds + size / SLOW),
        isolated=lambda size: deadline(ISOLATED * seconds + size / SLOWEST),
        message=lambda size: deadline(seconds + size / SLOWEST),
    )
    return BatchDecoder(
        Framing(settings.max_alert_bytes, schemas_of(settings), guards.message),
        Decoder(DecoderFile(settings.spool)),
        latest_mjd=lambda: now_mjd() + settings.future_days,
        secret=os.urandom(SECRET_BYTES),
        guards=guards,
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
            part = store(batch.part(len(outcomes), len(batch.messages)))
            outcomes += part.outcomes
            seconds.update(part.seconds)
            size += part.stored_bytes
            if time.monotonic() > latest:
                late = Overloaded("the batch takes too long: its first alerts are stored")
                outcomes += [late] * (len(batch.messages) - len(outcomes))
        return StoredBatch(outcomes, dict(seconds), size)

    return store_batch


def blaming(store: BatchStorer, settings: Settings) -> BatchStorer:
    """What stores a batch, by one that fails as a whole if an alert in it cannot be stored.

    Then each half is stored by itself, and so on, until the alerts that fail alone are known: they
    are refused. This happens where nobody expects it, behind the decoder and all its checks.
    Failures of the store or of this machine are no alert's fault, and remain. What is not begun
    after half of `flush_seconds` is to be sent again, as with `in_parts`.
    """

    def store_batch(batch: Batch) -> StoredBatch:
        return store_until(time.monotonic() + settings.flush_seconds / 2, batch)

    def store_until(latest: float, batch: Batch) -> StoredBatch:
        size = len(batch.messages)
        try:
            return store(batch)
        except MemoryError:  # Arrow's is an ArrowException too
            raise
        except BLAMED as error:
            if size < 2:
                traceback.print_exc()
                reason = f"it cannot be stored: {type(error).__name__}: {str(error)[:300]}"
                return StoredBatch([Unusable(reason)] * size, {}, 0)
        halves = batch.part(0, size // 2), batch.part(size // 2, size)
        parts = [half_until(latest, half) for half in halves]
        seconds = sum((Counter(part.seconds) for part in parts), Counter[str]())
        stored = sum(part.stored_bytes for part in parts)
        return StoredBatch(
            [each for part in parts for each in part.outcomes], dict(seconds), stored
        )

    def half_until(latest: float, half: Batch) -> StoredBatch:
        if time.monotonic() > latest:
            late = Overloaded("the search for alerts that cannot be stored takes too long")
            return StoredBatch([late] * len(half.messages), {}, 0)
        return store_until(latest, half)

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
