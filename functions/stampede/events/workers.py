"""Stores batches in worker processes, and finds the one message that kills them.

If a batch fails or kills its worker, it is tried again with each message checked alone first. If
that fails too, its halves are tried, and their halves, down to the message at fault.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import structlog

from stampede import metrics
from stampede.errors import StoreDown
from stampede.events.batching import Outcome
from stampede.events.event import Event
from stampede.events.spool import Spool
from stampede.events.worker import BatchFailed, MakeBatchStorer, SpooledBatch, StoredBatch
from stampede.events.worker_process import WorkerDied, WorkerProcess
from stampede.settings import Settings

log = structlog.get_logger()


class Workers:
    """The worker processes, each storing one batch at a time.

    An async context manager: the processes run while it is open.

    Parameters
    ----------
    name
        The function's name, in logs and metrics.
    make_batch_storer
        Makes what stores a batch, in the worker process.
    """

    def __init__(self, name: str, make_batch_storer: MakeBatchStorer, settings: Settings) -> None:
        self._name = name
        self._make_batch_storer = make_batch_storer
        self._settings = settings
        self._spool: Spool  # made on entering, with the processes
        self._all: list[WorkerProcess] = []
        self._idle: asyncio.Queue[WorkerProcess] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        self._spool = Spool(self._settings.spool)
        for number in range(self._settings.workers):
            worker = WorkerProcess(
                self._make_batch_storer, self._settings, self._spool.path / str(number)
            )
            self._all.append(worker)
            self._idle.put_nowait(worker)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(asyncio.to_thread(worker.close) for worker in self._all))
        self._spool.close()

    async def store_batch(self, events: Sequence[Event]) -> list[Outcome]:
        """Store events; one outcome per event.

        Raises
        ------
        StoreDown
            The store or the spool failed; no event is at fault.
        """
        try:
            return await self._try_batch(events, careful=False)
        except BatchFailed:
            return await self._bisect(events)

    async def _bisect(self, events: Sequence[Event]) -> list[Outcome]:
        """Store events, each checked alone first; if that fails, their halves in the same way."""
        try:
            return await self._try_batch(events, careful=True)
        except BatchFailed as failure:
            if len(events) == 1:
                return [failure.outcome]
        half = len(events) // 2
        return [*await self._bisect(events[:half]), *await self._bisect(events[half:])]

    async def _try_batch(self, events: Sequence[Event], careful: bool) -> list[Outcome]:
        """Store events as one batch; one outcome per event. Raises `BatchFailed`, `StoreDown`."""
        begin = time.perf_counter()
        with self._spooled(events) as path:
            positions = [event.position for event in events]
            batch = SpooledBatch(path, [len(event.data) for event in events], positions, careful)
            worker = await self._idle.get()
            try:
                stored = await asyncio.to_thread(worker.store, batch)
            except BatchFailed as failure:
                if isinstance(failure, WorkerDied):
                    metrics.WORKER_DEATHS.labels(self._name).inc()
                log.warning(
                    "batch failed, checking each alert alone",
                    function=self._name,
                    alerts=len(events),
                    careful=careful,
                    reason=str(failure),
                )
                raise
            finally:
                self._idle.put_nowait(worker)
        self._count(stored, len(events), time.perf_counter() - begin)
        return stored.outcomes

    @contextmanager
    def _spooled(self, events: Sequence[Event]) -> Iterator[Path]:
        """A file of all messages, one after the other. Raises `StoreDown` if the spool is full."""
        path = None
        try:
            try:
                file, name = tempfile.mkstemp(suffix=".batch", dir=self._spool.path)
                path = Path(name)
                _write(file, events)
            except OSError as error:
                raise StoreDown(f"cannot write to the spool {self._spool.path}: {error}") from error
            yield path
        finally:
            if path:
                path.unlink(missing_ok=True)

    def _count(self, stored: StoredBatch, alerts: int, seconds: float) -> None:
        stages = {**stored.seconds, "whole": seconds}
        metrics.count_flush(self._name, alerts, stored.stored_bytes, stages)


def _write(file: int, events: Sequence[Event]) -> None:
    """Write the data of all events to a file descriptor, and close it. Raises `OSError`."""
    with os.fdopen(file, "wb", buffering=0) as out:
        for event in events:
            rest = memoryview(event.data)
            while len(rest):
                rest = rest[out.write(rest) :]
