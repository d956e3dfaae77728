"""One worker process: stores batches, and may die of a batch.

The vectorised decoder is not safe with malformed bytes (see `alerts.decode`), so a batch is
decoded and stored in a process of its own. The kernel kills that process if decoding overruns its
deadline, and the process ends itself if it outgrows its memory. Both sides of the pipe between
the function and its worker are in this module.

Messages reach the worker through one file in a memory-backed directory: no pickling, no copy.
"""

import ctypes
import mmap
import multiprocessing
import os
import resource
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, Protocol

from stampede.alerts.decoder import DecoderFailed
from stampede.errors import StampedeError, StoreDown, Undecodable
from stampede.events.batching import Outcome
from stampede.events.event import Position
from stampede.settings import Settings

CLOCK_PER_CPU_SECOND = 20  # how much longer a deadline is by the clock than in CPU time
OUT_OF_MEMORY = 86  # exit status of a worker that outgrew its limit
PR_SET_PDEATHSIG = 1
# Spawned, not forked: a fork would copy the event loop's threads in whatever state they are.
_SPAWN = multiprocessing.get_context("spawn")


class Batch(NamedTuple):
    """A batch in its worker: messages, where each came from, whether to check each one alone."""

    messages: Sequence[bytes | memoryview]
    positions: Sequence[Position | None]
    careful: bool

    def stored_positions(self, outcomes: Sequence[Outcome]) -> list[Position | None]:
        """The positions of the messages without an error."""
        return [p for p, error in zip(self.positions, outcomes, strict=True) if error is None]


class StoredBatch(NamedTuple):
    """What came of a batch: an outcome per message, seconds by stage, bytes put."""

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
    """A batch on its way to a worker: a file of all messages, and their sizes in order."""

    path: Path
    sizes: list[int]
    positions: list[Position | None]
    careful: bool


class BatchFailed(Exception):
    """A batch could not be stored as one, because of a message in it.

    Attributes
    ----------
    outcome
        The error of the message at fault, if the batch has no other message.
    """

    def __init__(self, reason: str, outcome: StampedeError | None = None) -> None:
        super().__init__(reason)
        self.outcome = outcome or Undecodable(f"the decoder cannot finish it: {reason}")


class WorkerDied(BatchFailed):
    """The worker died of a batch."""


class Worker:
    """A worker process, replaced whenever it dies.

    Parameters
    ----------
    make_batch_storer
        Makes what stores a batch, in the process.
    spool
        The process's own directory, its setting `spool`. Emptied before each start, since a
        process that dies leaves files in it.
    """

    def __init__(self, make_batch_storer: MakeBatchStorer, settings: Settings, spool: Path) -> None:
        self._make_batch_storer = make_batch_storer
        self._settings = settings.model_copy(update={"spool": spool})
        self._start()

    def store(self, batch: SpooledBatch) -> StoredBatch:
        """Store a batch in the process; blocks.

        Raises
        ------
        BatchFailed
            The batch cannot be decoded as a whole, or (`WorkerDied`) kills the process.
        StoreDown
            The process took too long: the store's fault, since decoding has its own deadline.
        """
        seconds = self._settings.flush_seconds
        try:
            self._pipe.send(batch)
            if not self._pipe.poll(seconds):
                self._restart()
                raise StoreDown(f"storing took more than {seconds:g} s")
            answer = self._pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise self._death(self._restart()) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """End the process. No batch may be under way."""
        self._pipe.close()
        self._process.join(5)
        self._process.kill()

    def _start(self) -> None:
        shutil.rmtree(self._settings.spool, ignore_errors=True)
        self._settings.spool.mkdir(parents=True)
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(
            target=_main,
            args=(theirs, self._make_batch_storer, self._settings, os.getpid()),
            daemon=True,
        )
        self._process.start()
        theirs.close()

    def _restart(self) -> int:
        """Replace the process; returns the exit status of the old one."""
        self._process.join(1)
        self._process.kill()
        self._process.join()
        status = self._process.exitcode
        self._pipe.close()
        self._start()
        return status or 0

    def _death(self, status: int) -> WorkerDied:
        """Why the process died, and whose fault that is."""
        if status in (-signal.SIGPROF, -signal.SIGALRM):
            return WorkerDied("it never ends")
        if status == OUT_OF_MEMORY:
            return WorkerDied("it takes too much memory")
        reason = f"it cost the process its life (status {status})"
        if status in (-signal.SIGKILL, -signal.SIGTERM):  # not the batch's fault: try again
            return WorkerDied(reason, StampedeError("the worker was killed from outside"))
        return WorkerDied(reason)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Have the kernel kill this process if the block uses more than `seconds` of CPU time.

    CPU time, because by the clock an overloaded machine would make good alerts fail. A block
    that waits for ever uses no CPU time, so there is also a deadline by the clock, 20 times as
    long. The signals' default action needs no Python: native code that never returns dies too.
    """
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, CLOCK_PER_CPU_SECOND * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)


def _main(
    pipe: Connection, make_batch_storer: MakeBatchStorer, settings: Settings, parent: int
) -> None:
    # Ctrl-C reaches the whole process group, but the function needs its workers to drain.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the line above
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.Thread(target=_watch_memory, args=[settings.worker_memory], daemon=True).start()
    store = _batch_storer(make_batch_storer, settings)
    while True:
        try:
            spooled = pipe.recv()
        except EOFError:
            return
        pipe.send(_answer(store, spooled))


def _batch_storer(make_batch_storer: MakeBatchStorer, settings: Settings) -> BatchStorer:
    """A batch storer; if making one fails, one that raises that error: no batch is at fault."""
    try:
        return make_batch_storer(settings)
    except Exception as error:
        traceback.print_exc()
        failure = error if isinstance(error, StampedeError) else StampedeError(repr(error))

        def fail(batch: Batch) -> StoredBatch:
            raise failure

        return fail


def _answer(store: BatchStorer, spooled: SpooledBatch) -> StoredBatch | Exception:
    """Store a batch. Returns an exception for the function's process to raise."""
    messages = _messages(spooled)
    try:
        return store(Batch(messages, spooled.positions, spooled.careful))
    except DecoderFailed as error:
        return BatchFailed(error.message)
    except StampedeError as error:
        return error
    except Exception as error:  # a bug: only the message that triggers it is refused
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}"
        return BatchFailed(reason, StampedeError(reason))


def _messages(spooled: SpooledBatch) -> list[memoryview]:
    """The messages of a batch, mapped into memory."""
    with open(spooled.path, "rb") as file:
        spooled.path.unlink()  # now the file cannot outlive this process
        size = sum(spooled.sizes)
        data = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")
    messages, begin = [], 0
    for size in spooled.sizes:
        messages.append(data[begin : begin + size])
        begin += size
    return messages


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
