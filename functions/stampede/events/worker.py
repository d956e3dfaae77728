"""One worker process: flushes batches, and may die doing so.

The vectorised decoder must not be trusted with a stranger's bytes (see `alerts.decode`), so a
batch is flushed in a process that the kernel kills when decoding overruns its deadline, and that
ends itself when it outgrows its memory. Both sides of the pipe between door and worker are here.

Bodies reach the worker through one file in a memory-backed directory: no pickling, no copy.
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

PATIENCE = 20
OUT_OF_MEMORY = 86  # exit status of a worker that outgrew its limit
PR_SET_PDEATHSIG = 1
# Spawned, not forked: a fork would copy the event loop's threads in whatever state they are.
_SPAWN = multiprocessing.get_context("spawn")


class Batch(NamedTuple):
    """What a flush gets: messages, where each came from, and whether to check each alone."""

    messages: Sequence[bytes | memoryview]
    positions: Sequence[Position | None]
    careful: bool

    def stored(self, faults: Sequence[Outcome]) -> list[Position | None]:
        """The places of those messages that have no fault."""
        return [p for p, fault in zip(self.positions, faults, strict=True) if fault is None]


class Flushed(NamedTuple):
    """What came of a flush: a verdict per message, seconds by stage, bytes put."""

    verdicts: list[Outcome]
    seconds: dict[str, float]
    stored_bytes: int


class Flusher(Protocol):
    """The part of a function that runs in a worker."""

    def __call__(self, batch: Batch) -> Flushed:
        """Make a batch durable."""


class MakeFlusher(Protocol):
    """How a worker makes its flusher: an importable function."""

    def __call__(self, settings: Settings) -> Flusher:
        """Connect to what the flusher needs."""


class Job(NamedTuple):
    """A batch on its way: the file with all messages, their sizes in order, the rest as it is."""

    path: Path
    sizes: list[int]
    positions: list[Position | None]
    careful: bool


class BatchFailed(Exception):
    """A batch could not be stored as one, because of what is in it.

    Attributes
    ----------
    verdict
        What the message is answered with that is found to blame.
    """

    def __init__(self, reason: str, verdict: StampedeError | None = None) -> None:
        super().__init__(reason)
        self.verdict = verdict or Undecodable(f"the decoder cannot finish it: {reason}")


class WorkerDied(BatchFailed):
    """A batch cost the worker its life."""


class Worker:
    """A worker process, started anew whenever it has died.

    Parameters
    ----------
    make
        Makes its flusher.
    spool
        Directory of its own, which is its flusher's setting `spool`; made here, and emptied of
        what a process leaves that dies.
    """

    def __init__(self, make: MakeFlusher, settings: Settings, spool: Path) -> None:
        self._make = make
        self._settings = settings.model_copy(update={"spool": spool})
        self._start()

    def flush(self, job: Job) -> Flushed:
        """Have a batch flushed; blocks.

        Raises
        ------
        BatchFailed
            It cannot be decoded as a whole, or (`WorkerDied`) kills who tries.
        StoreDown
            It took too long. Decoding has a deadline of its own, so that is the store's doing.
        """
        seconds = self._settings.flush_seconds
        try:
            self._pipe.send(job)
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
        """End the process, which has nothing to do."""
        self._pipe.close()
        self._process.join(5)
        self._process.kill()

    def _start(self) -> None:
        shutil.rmtree(self._settings.spool, ignore_errors=True)
        self._settings.spool.mkdir(parents=True)
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(
            target=_main, args=(theirs, self._make, self._settings, os.getpid()), daemon=True
        )
        self._process.start()
        theirs.close()

    def _restart(self) -> int:
        """Start another process; the exit status of the last one."""
        self._process.join(1)
        self._process.kill()
        self._process.join()
        status = self._process.exitcode
        self._pipe.close()
        self._start()
        return status or 0

    def _death(self, status: int) -> WorkerDied:
        """Why a process died, and what that makes of a message that was alone with it."""
        if status in (-signal.SIGPROF, -signal.SIGALRM):
            return WorkerDied("it never ends")
        if status == OUT_OF_MEMORY:
            return WorkerDied("it takes too much memory")
        reason = f"it cost the process its life (status {status})"
        if status in (-signal.SIGKILL, -signal.SIGTERM):  # somebody else's doing: try again
            return WorkerDied(reason, StampedeError("the worker was killed from outside"))
        return WorkerDied(reason)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Have the kernel kill this process if the block costs more CPU time than that.

    Not time by the clock: on a machine with too much to do a good alert would be to blame. What
    waits for something that never comes costs none, and has `PATIENCE` times as long by the clock.
    The signals' default action needs no Python: native code that never returns dies as well.
    """
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)


def _main(pipe: Connection, make: MakeFlusher, settings: Settings, parent: int) -> None:
    # Ctrl-C reaches the whole process group: the door drains, and a drain needs its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.Thread(target=_watch_memory, args=[settings.worker_memory], daemon=True).start()
    flusher = _made(make, settings)
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        pipe.send(_flush(flusher, job))


def _made(make: MakeFlusher, settings: Settings) -> Flusher:
    """A flusher; where that fails, one that says so: it is not the fault of any batch."""
    try:
        return make(settings)
    except Exception as error:
        traceback.print_exc()
        failure = error if isinstance(error, StampedeError) else StampedeError(repr(error))

        def fail(batch: Batch) -> Flushed:
            raise failure

        return fail


def _flush(flusher: Flusher, job: Job) -> Flushed | Exception:
    """The answer to a job; an exception is one for the door to raise."""
    with open(job.path, "rb") as file:
        job.path.unlink()  # gone from the directory, whatever becomes of this process
        size = sum(job.sizes)
        data = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")
    messages, at = [], 0
    for size in job.sizes:
        messages.append(data[at : at + size])
        at += size
    try:
        return flusher(Batch(messages, job.positions, job.careful))
    except DecoderFailed as error:
        return BatchFailed(error.message)
    except StampedeError as error:
        return error
    except Exception as error:  # a fault of ours: what it is about is tried again, but no more
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}"
        return BatchFailed(reason, StampedeError(reason))


def _watch_memory(limit: int) -> None:
    """End this process when it holds more than `limit` bytes of memory.

    A limit set with the kernel would count what the allocators merely reserve, gigabytes.
    """
    page = resource.getpagesize()
    while True:
        with open("/proc/self/statm") as statm:
            held = int(statm.read().split()[1]) * page
        if held > limit:
            os._exit(OUT_OF_MEMORY)
        time.sleep(0.1)
