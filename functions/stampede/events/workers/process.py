"""Starts a worker process, sends it batches, and replaces it when it dies."""

import multiprocessing
import os
import shutil
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from stampede.config.settings import Settings
from stampede.errors import StampedeError, StoreDown
from stampede.events.workers.worker import (
    OUT_OF_MEMORY,
    BatchFailed,
    MakeBatchStorer,
    SpooledBatch,
    StoredBatch,
    run_worker,
)

# Spawned, not forked: a fork would copy the event loop's threads in an arbitrary state.
_SPAWN = multiprocessing.get_context("spawn")


class WorkerDied(BatchFailed):
    """The worker died of a batch."""


class WorkerProcess:
    """A worker process, replaced whenever it dies.

    Parameters
    ----------
    make_batch_storer
        Makes what stores a batch, in the process.
    spool
        A directory that only this process uses, its setting `spool`. Emptied before each start,
        since a process that dies leaves files in it.
    """

    def __init__(self, make_batch_storer: MakeBatchStorer, settings: Settings, spool: Path) -> None:
        self._make_batch_storer = make_batch_storer
        self._settings = settings.model_copy(update={"spool": spool})
        self._pipe: Connection
        self._ready = False  # whether the process has said so
        self._start()

    def store(self, batch: SpooledBatch) -> StoredBatch:
        """Store a batch in the process; blocks.

        Raises
        ------
        BatchFailed
            The batch cannot be decoded, or (`WorkerDied`) kills the process.
        StoreDown
            The process took too long: the store's fault, since decoding has its own deadline.
            Or the last one died, and a new one cannot be started now.
        """
        seconds = self._settings.flush_seconds
        if self._pipe.closed:
            self._start()
        try:
            if not self._ready:
                self._receive(seconds)
                self._ready = True
            self._pipe.send(batch)
            response: StoredBatch | Exception = self._receive(seconds)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            ready, status = self._ready, self._restart()
            if not ready:  # nobody has read the batch
                raise StoreDown(f"a worker ended before it was ready (status {status})") from None
            raise self._death(status) from None
        if isinstance(response, Exception):
            raise response
        return response

    def _receive(self, seconds: float) -> Any:
        """What the process sends next. Raises `StoreDown` if it takes too long."""
        if not self._pipe.poll(seconds):
            self._restart()
            raise StoreDown(f"storing took more than {seconds:g} s")
        return self._pipe.recv()

    def close(self) -> None:
        """End the process. No batch may be under way."""
        self._pipe.close()
        self._process.join(5)
        self._process.kill()

    def _start(self) -> None:
        """Start a process. Raises `StoreDown` if this machine has no room for it or its files."""
        self._ready = False
        shutil.rmtree(self._settings.spool, ignore_errors=True)
        try:
            self._settings.spool.mkdir(parents=True)
            pipe, worker_end = _SPAWN.Pipe()
            process = _SPAWN.Process(
                target=run_worker,
                args=(worker_end, self._make_batch_storer, self._settings, os.getpid()),
                daemon=True,
            )
            process.start()
        except OSError as error:
            raise StoreDown(f"cannot start a worker: {error}") from error
        worker_end.close()
        self._pipe, self._process = pipe, process

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
            return WorkerDied("it takes too much memory", sum=True)
        reason = f"it cost the process its life (status {status})"
        if status in (-signal.SIGKILL, -signal.SIGTERM):  # not the batch's fault: try again
            return WorkerDied(reason, StampedeError("the worker was killed from outside"))
        return WorkerDied(reason)
