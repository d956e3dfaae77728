"""A worker process: stores batches, and may die of a batch.

The vectorised decoder is not safe with malformed bytes (see `alerts.decoder`), so a batch is
decoded and stored in a process of its own. The kernel kills that process if decoding overruns its
deadline, and the process ends itself if it outgrows its memory. `worker_process` replaces it.

Messages reach the worker through one file in a memory-backed directory: no pickling, no copy.
"""

import ctypes
import gc
import mmap
import os
import resource
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, Protocol

from stampede.alerts.isolation import Isolation
from stampede.config.settings import Settings
from stampede.errors import DecoderFailed, StampedeError, Undecodable
from stampede.events.cloudevents.envelope import Envelope
from stampede.events.cloudevents.event import Position, coverage_of_positions
from stampede.events.workers.batching import Outcome
from stampede.store.offsets.coverage import Coverage
from stampede.telemetry import tracing
from stampede.telemetry.logs import configure_logs

CLOCK_PER_CPU_SECOND = 20  # how much longer a deadline is by the clock than in CPU time
READY = "ready"  # the first thing that a worker sends
OUT_OF_MEMORY = 86  # exit status of a worker that outgrew its limit
PR_SET_PDEATHSIG = 1


def _suspect_none(numbers: Sequence[int]) -> None:
    """Note nothing: nobody reads the notes of this batch."""


class Batch(NamedTuple):
    """A batch in its worker.

    Attributes
    ----------
    messages
        The alerts' bytes.
    positions
        Where each came from.
    isolation
        How far to isolate them from each other.
    suspect
        Notes the numbers of the messages that are about to be read. If the worker dies, one of
        them is to blame.
    skipped
        How many offsets just before each position are no messages; empty if none are.
    envelopes
        What else came with each message; empty if nothing did.
    paths
        The path that each was sent to; empty if all were sent to ``/``.
    """

    messages: Sequence[bytes | memoryview]
    positions: Sequence[Position | None]
    isolation: Isolation = Isolation.FAST
    suspect: Callable[[Sequence[int]], None] = _suspect_none
    skipped: Sequence[int] = ()
    envelopes: Sequence[Envelope] = ()
    paths: Sequence[str] = ()

    def part(self, begin: int, end: int) -> "Batch":
        """The messages from number `begin` to before `end`, as a batch."""
        if begin == 0 and end >= len(self.messages):
            return self
        return self.chosen(range(begin, min(end, len(self.messages))))

    def chosen(self, numbers: Sequence[int]) -> "Batch":
        """The messages with these numbers, as a batch."""
        return Batch(
            [self.messages[number] for number in numbers],
            [self.positions[number] for number in numbers],
            self.isolation,
            lambda suspects: self.suspect([numbers[number] for number in suspects]),
            [self.skipped[number] for number in numbers] if self.skipped else (),
            [self.envelopes[number] for number in numbers] if self.envelopes else (),
            [self.paths[number] for number in numbers] if self.paths else (),
        )

    def coverage(self, outcomes: Sequence[Outcome]) -> Coverage:
        """The coverage of the messages without an error; `outcomes` may be those of the first."""
        return self.coverage_of([n for n, error in enumerate(outcomes) if error is None])

    def coverage_of(self, numbers: Sequence[int]) -> Coverage:
        """The coverage of the messages with these numbers."""
        skipped = self.skipped or [0] * len(self.positions)
        positions = [self.positions[number] for number in numbers]
        return coverage_of_positions(positions, [skipped[number] for number in numbers])

    def stored_positions(self, outcomes: Sequence[Outcome]) -> list[Position | None]:
        """The positions of the messages without an error."""
        positions = self.positions[: len(outcomes)]
        return [p for p, error in zip(positions, outcomes, strict=True) if error is None]


class StoredBatch(NamedTuple):
    """The result of storing a batch: an outcome per message, seconds by stage, bytes put."""

    outcomes: list[Outcome]
    seconds: dict[str, float]
    stored_bytes: int


class BatchStorer(Protocol):
    """The part of a function that runs in a worker."""

    def __call__(self, batch: Batch) -> StoredBatch:
        """Make a batch durable."""


class MakeBatchStorer(Protocol):
    """Makes a worker's batch storer; an importable function."""

    def __call__(self, settings: Settings) -> BatchStorer:
        """Connect to the store."""


class SpooledBatch(NamedTuple):
    """A batch on its way to a worker.

    Attributes
    ----------
    path
        A file of all messages, then a byte for each: 1 if the worker suspects it.
    sizes
        Bytes of each message, in the file's order.
    trace
        Context of the trace that the batch is a step of.
    """

    path: Path
    sizes: list[int]
    positions: list[Position | None]
    isolation: Isolation
    skipped: list[int]
    envelopes: list[Envelope]
    paths: list[str]
    trace: str | None = None


class BatchFailed(Exception):
    """A batch could not be stored as one, because of a message in it.

    Attributes
    ----------
    outcome
        The error of the message at fault.
    sum
        Whether all messages together may be the reason, and not one of them.
    suspects
        Numbers of the messages of which one is at fault; empty if nothing is known.
    """

    def __init__(
        self, reason: str, outcome: StampedeError | None = None, sum: bool = False
    ) -> None:
        super().__init__(reason)
        self.outcome = outcome or Undecodable(f"the decoder cannot finish it: {reason}")
        self.sum = sum
        self.suspects: list[int] = []


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Have the kernel kill this process if the block uses more than `seconds` of CPU time.

    CPU time, because by the clock an overloaded machine would make good alerts fail. A block
    that waits for ever uses no CPU time, so there is also a deadline by the clock, 20 times as
    long. The signals' default action needs no Python: native code that never returns dies too.

    A block within another does not use up the time of that one.
    """
    outer_cpu, _ = signal.setitimer(signal.ITIMER_PROF, seconds)
    outer_clock, _ = signal.setitimer(signal.ITIMER_REAL, CLOCK_PER_CPU_SECOND * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, outer_clock)
        signal.setitimer(signal.ITIMER_PROF, outer_cpu)


def run_worker(
    pipe: Connection, make_batch_storer: MakeBatchStorer, settings: Settings, parent: int
) -> None:
    """Store the batches that come through `pipe`, until it is closed or process `parent` ends."""
    # Ctrl-C reaches the whole process group, but the function needs its workers to drain.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the line above
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.Thread(target=_watch_memory, args=[settings.worker_memory], daemon=True).start()
    configure_logs()
    pipe.send(READY)
    store = _batch_storer(make_batch_storer, settings)
    gc.collect()
    gc.freeze()  # what is here now stays: a later collection need not look at it
    gc.disable()  # a batch makes many objects, and they are collected after it
    while True:
        try:
            spooled = pipe.recv()
        except EOFError:
            return
        pipe.send(_respond(store, spooled))
        # A traceback, of a refused alert or of a request that was made again, holds frames that
        # hold it, and with them the batch: bytes of a spool that may be full. Without a next batch
        # nothing else would collect them.
        gc.collect()


def _batch_storer(make_batch_storer: MakeBatchStorer, settings: Settings) -> BatchStorer:
    """A batch storer. If making it fails, it raises that error for each batch: none is at fault."""
    try:
        return make_batch_storer(settings)
    except Exception as error:
        traceback.print_exc()
        failure = error if isinstance(error, StampedeError) else StampedeError(repr(error))

        def fail(batch: Batch) -> StoredBatch:
            raise failure.anew()

        return fail


def _respond(store: BatchStorer, spooled: SpooledBatch) -> StoredBatch | Exception:
    """Store a batch. Returns an exception for the function's process to raise."""
    with open(spooled.path, "r+b", buffering=0) as file:
        messages = _messages(file.fileno(), spooled.sizes)
        note = Suspicion(file.fileno(), spooled.sizes)
        _, _, positions, isolation, skipped, envelopes, paths, trace = spooled
        batch = Batch(messages, positions, isolation, note.suspect, skipped, envelopes, paths)
        with tracing.carrying(trace):
            return _outcome(store, batch)


def _outcome(store: BatchStorer, batch: Batch) -> StoredBatch | Exception:
    try:
        return store(batch)
    except DecoderFailed as error:
        return BatchFailed(error.message)
    except StampedeError as error:
        return error
    except Exception as error:  # a bug: only the message that triggers it is refused
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}"
        return BatchFailed(reason, StampedeError(reason))


def _messages(file: int, sizes: Sequence[int]) -> list[memoryview]:
    """The messages of a batch, mapped into memory."""
    size = sum(sizes)
    data = memoryview(mmap.mmap(file, size, access=mmap.ACCESS_READ) if size else b"")
    messages, begin = [], 0
    for size in sizes:
        messages.append(data[begin : begin + size])
        begin += size
    return messages


class Suspicion:
    """Which messages of a batch its worker was reading: bytes at the end of the batch's file.

    The worker writes them, and the function's process reads them if the worker dies.
    """

    def __init__(self, file: int, sizes: Sequence[int]) -> None:
        self._file = file
        self._begin, self._count = sum(sizes), len(sizes)

    def suspect(self, numbers: Sequence[int]) -> None:
        """Note the numbers of the messages that are about to be read."""
        flags = bytearray(self._count)
        for number in numbers:
            flags[number] = 1
        os.pwrite(self._file, flags, self._begin)

    def numbers(self) -> list[int]:
        """The numbers noted last."""
        flags = os.pread(self._file, self._count, self._begin)
        return [number for number, flag in enumerate(flags) if flag]


def _watch_memory(limit: int) -> None:
    """End this process when its resident memory exceeds `limit` bytes.

    A kernel limit would count address space, of which the allocators reserve gigabytes.
    """
    page = resource.getpagesize()
    while True:
        with open("/proc/self/statm") as statm:
            resident = int(statm.read().split()[1]) * page
        if resident > limit:
            os._exit(OUT_OF_MEMORY)
        time.sleep(0.1)
