"""Flushes batches in worker processes, and finds the one message that kills them.

When a batch fails or costs the worker its life, it goes again with each message checked alone
first; if that fails too, halves of it go, down to the message that is to blame.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog

from stampede import metrics
from stampede.errors import StoreDown
from stampede.events.batching import Outcome
from stampede.events.event import Event
from stampede.events.spool import Spool
from stampede.events.worker import BatchFailed, Flushed, Job, MakeFlusher, Worker, WorkerDied
from stampede.settings import Settings

log = structlog.get_logger()


class Workers:
    """As many worker processes as settings say, each flushing one batch at a time.

    Parameters
    ----------
    name
        The function's, in logs and metrics.
    make
        Makes the flusher, in the worker.
    """

    def __init__(self, name: str, make: MakeFlusher, settings: Settings) -> None:
        self._name = name
        self._spool = Spool(settings.spool)
        self._all = [
            Worker(make, settings, self._spool.path / str(number))
            for number in range(settings.workers)
        ]
        self._idle: asyncio.Queue[Worker] = asyncio.Queue()
        for worker in self._all:
            self._idle.put_nowait(worker)

    async def flush(self, events: Sequence[Event]) -> list[Outcome]:
        """Make events durable, whatever is among them; a verdict each. Raises `StoreDown`."""
        try:
            return await self._flush(events, careful=False)
        except BatchFailed:
            return await self._find_the_culprit(events)

    async def close(self) -> None:
        """End the workers; no flush is under way."""
        await asyncio.gather(*(asyncio.to_thread(worker.close) for worker in self._all))
        self._spool.close()

    async def _find_the_culprit(self, events: Sequence[Event]) -> list[Outcome]:
        try:
            return await self._flush(events, careful=True)
        except BatchFailed as failure:
            if len(events) == 1:
                return [failure.verdict]
        half = len(events) // 2
        return [
            *await self._find_the_culprit(events[:half]),
            *await self._find_the_culprit(events[half:]),
        ]

    async def _flush(self, events: Sequence[Event], careful: bool) -> list[Outcome]:
        """A verdict per event. Raises `BatchFailed` where the batch cannot be stored as one."""
        begin = time.perf_counter()
        with self._written(events) as path:
            positions = [event.position for event in events]
            job = Job(path, [len(event.data) for event in events], positions, careful)
            worker = await self._idle.get()
            try:
                flushed = await asyncio.to_thread(worker.flush, job)
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
        self._count(flushed, len(events), time.perf_counter() - begin)
        return flushed.verdicts

    @contextmanager
    def _written(self, events: Sequence[Event]) -> Iterator[Path]:
        """A file with all messages, one after the other. Raises `StoreDown` where it is full."""
        path = None
        try:
            try:
                file, name = tempfile.mkstemp(suffix=".batch", dir=self._spool.path)
                path = Path(name)
                with os.fdopen(file, "wb", buffering=0) as out:
                    for event in events:
                        rest = memoryview(event.data)
                        while len(rest):
                            rest = rest[out.write(rest) :]
            except OSError as error:
                raise StoreDown(f"the spool {self._spool.path} takes no batch: {error}") from error
            yield path
        finally:
            if path:
                path.unlink(missing_ok=True)

    def _count(self, flushed: Flushed, alerts: int, seconds: float) -> None:
        stages = {**flushed.seconds, "whole": seconds}
        metrics.count_flush(self._name, alerts, flushed.stored_bytes, stages)
