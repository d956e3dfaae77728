"""Stores batches in worker processes, and finds the one message that kills them.

If a batch fails or kills its worker, it is tried again with more `Isolation`. Then the worker
notes which message it is about to read. If it dies, that message is refused, and the others are
tried again. So a message that kills workers costs its batch two deadlines and two new workers,
wherever in the batch it is.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from stampede.alerts.isolation import Isolation
from stampede.config.settings import Settings
from stampede.errors import StoreDown
from stampede.events.cloudevents.envelope import envelope_of
from stampede.events.cloudevents.event import Event
from stampede.events.workers.batching import Outcome
from stampede.events.workers.process import WorkerDied, WorkerProcess
from stampede.events.workers.spool import Spool, SpoolFile
from stampede.events.workers.worker import (
    BatchFailed,
    MakeBatchStorer,
    SpooledBatch,
    StoredBatch,
    Suspicion,
)
from stampede.telemetry import event_metrics, tracing
from stampede.telemetry.logs import get_logger

log = get_logger()


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
        self._files: list[SpoolFile] = []  # for the next batches
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
        self._files.clear()
        self._spool.close()

    async def store_batch(self, events: Sequence[Event]) -> list[Outcome]:
        """Store events; one outcome per event.

        Raises
        ------
        StoreDown
            The store or the spool failed; no event is at fault.
        """
        outcomes: list[Outcome] = [None] * len(events)
        await self._store(events, range(len(events)), Isolation.FAST, outcomes)
        return outcomes

    async def _store(
        self,
        events: Sequence[Event],
        numbers: Sequence[int],
        isolation: Isolation,
        outcomes: list[Outcome],
    ) -> None:
        """Store the events of these numbers, and set their outcomes."""
        if not numbers:
            return
        try:
            found = await self._try_batch([events[number] for number in numbers], isolation)
        except BatchFailed as failure:
            for part, next_isolation in _next_attempts(numbers, isolation, failure):
                if next_isolation is not None:
                    await self._store(events, part, next_isolation, outcomes)
                else:
                    outcomes[part[0]] = failure.outcome
                    self._log_refused(events[part[0]], failure)
            return
        for number, outcome in zip(numbers, found, strict=True):
            outcomes[number] = outcome

    async def _try_batch(self, events: Sequence[Event], isolation: Isolation) -> list[Outcome]:
        """Store events as one batch; one outcome per event. Raises `BatchFailed`, `StoreDown`."""
        begin = time.perf_counter()
        sizes = [len(event.data) for event in events]
        with self._spooled(events) as (path, file):
            positions = [event.position for event in events]
            skipped = [event.skipped for event in events]
            envelopes = [envelope_of(event.attributes) for event in events]
            trace = tracing.current()
            paths = [event.path for event in events]
            batch = SpooledBatch(
                path, sizes, positions, isolation, skipped, envelopes, paths, trace
            )
            worker = await self._idle.get()
            try:
                stored = await asyncio.to_thread(worker.store, batch)
            except BatchFailed as failure:
                failure.suspects = Suspicion(file, sizes).numbers()
                if isinstance(failure, WorkerDied):
                    event_metrics.WORKER_DEATHS.labels(self._name).inc()
                log.warning(
                    "batch failed, trying it again with more care",
                    function=self._name,
                    alerts=len(events),
                    care=isolation.value,
                    suspects=len(failure.suspects),
                    reason=str(failure),
                )
                raise
            finally:
                self._idle.put_nowait(worker)
        self._count(stored, len(events), time.perf_counter() - begin)
        return stored.outcomes

    @contextmanager
    def _spooled(self, events: Sequence[Event]) -> Iterator[tuple[Path, int]]:
        """A batch's file: its path and descriptor. Raises `StoreDown` if the spool is full."""
        file = self._files.pop() if self._files else SpoolFile(self._spool.path)
        try:
            # The data of all events, then a zero for each.
            path = file.write([*(event.data for event in events), bytes(len(events))])
        except OSError as error:
            raise StoreDown(f"cannot write to the spool {self._spool.path}: {error}") from error
        yield Path(path), file.fileno()
        file.release()
        self._files.append(file)  # not after a failure: a worker may be at it still

    def _log_refused(self, event: Event, failure: BatchFailed) -> None:
        log.warning(
            "alert refused: its batch failed because of it",
            function=self._name,
            id=event.attributes.get("id"),
            source=event.attributes.get("source"),
            bytes=len(event.data),
            reason=str(failure),
        )

    def _count(self, stored: StoredBatch, alerts: int, seconds: float) -> None:
        stages = {**stored.seconds, "whole": seconds}
        event_metrics.count_flush(self._name, alerts, stored.stored_bytes, stages)
        if tracing.current():
            tracing.note({f"stampede.seconds.{stage}": spent for stage, spent in stages.items()})


Attempt = tuple[Sequence[int], Isolation | None]
"""Numbers of events to store with that isolation; without any, one event that is refused."""


def _next_attempts(
    numbers: Sequence[int], isolation: Isolation, failure: BatchFailed
) -> list[Attempt]:
    """What to do after the events of these numbers failed as a batch."""
    if isolation is Isolation.FAST:
        return [(numbers, Isolation.CHECKED)]
    if len(numbers) == 1:
        return [(numbers, None)]
    suspects = [numbers[at] for at in failure.suspects]
    if not suspects or len(suspects) == len(numbers):
        if isolation is Isolation.CHECKED:
            return [(numbers, Isolation.ALONE)]
        half = (len(numbers) + 1) // 2
        return [(numbers[:half], Isolation.ALONE), (numbers[half:], Isolation.ALONE)]
    if len(suspects) > 1:  # decoded together, so the others may have been decoded or not
        others = [number for number in numbers if number not in suspects]
        return [(others, Isolation.FAST), (suspects, Isolation.ALONE)]
    at = numbers.index(suspects[0])
    blame = Isolation.ALONE if failure.sum else None  # alone it may not take too much memory
    return [(suspects, blame), (numbers[:at], Isolation.FAST), (numbers[at + 1 :], isolation)]
