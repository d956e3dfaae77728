"""Group commit: while one batch is being stored, the next one fills.

Under light load a batch is what arrives within the linger, so an alert waits little; under
heavy load it is what arrived while the last batch was stored, so packs are large. The size of a
batch needs no tuning.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Self

from stampede import tracing
from stampede.errors import StampedeError
from stampede.events.event import Event

Outcome = StampedeError | None
"""The result for one event: None if it is durable, otherwise the error to answer with."""

StoreBatch = Callable[[Sequence[Event]], Awaitable[Sequence[Outcome]]]
Waiting = tuple[Event, asyncio.Future[Outcome]]


class Batcher:
    """Collects events into batches and answers each event when its batch is durable.

    An async context manager: batches are stored while it is open. On leaving it stores the
    events that still wait.

    Parameters
    ----------
    store_batch
        Stores a batch and returns an outcome per event.
    concurrency
        How many batches may be stored at once.
    most_events, most_bytes
        Bounds of one batch; a single event may exceed the bytes.
    linger
        Seconds a batch waits for more events.
    """

    def __init__(
        self,
        store_batch: StoreBatch,
        *,
        concurrency: int,
        most_events: int,
        most_bytes: int,
        linger: float,
    ) -> None:
        self._store_batch = store_batch
        self._concurrency = concurrency
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._linger = linger
        self._waiting: deque[Waiting] = deque()
        self._waiting_bytes = 0
        self._changed = asyncio.Event()  # an event came, or the batcher closes
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._store_batches()) for _ in range(self._concurrency)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._changed.set()
        await asyncio.gather(*self._tasks)

    async def add(self, event: Event) -> Outcome:
        """Wait until the event's batch was stored, and return the event's outcome.

        Nothing here bounds the events that wait: `EventEndpoint` counts their bytes before it reads
        them, until they are answered.
        """
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((event, future))
        self._waiting_bytes += len(event.data)
        self._changed.set()
        return await future

    async def _store_batches(self) -> None:
        while True:
            while not (self._waiting or self._closing):
                self._changed.clear()
                await self._changed.wait()
            if not self._waiting:
                return  # closing
            if not self._full() and not self._closing:
                await asyncio.sleep(self._linger)
            if batch := self._next_batch():
                await self._store(batch)

    def _full(self) -> bool:
        return len(self._waiting) >= self._most_events or self._waiting_bytes >= self._most_bytes

    def _next_batch(self) -> list[Waiting]:
        batch: list[Waiting] = []
        batch_bytes = 0
        while self._waiting and len(batch) < self._most_events:
            size = len(self._waiting[0][0].data)
            if batch and batch_bytes + size > self._most_bytes:
                break
            batch_bytes += size
            batch.append(self._waiting.popleft())
        self._waiting_bytes -= batch_bytes
        return batch

    async def _store(self, batch: list[Waiting]) -> None:
        outcomes: Sequence[Outcome]
        try:
            outcomes = await self._traced([event for event, _ in batch])
            if len(outcomes) != len(batch):
                raise StampedeError(f"{len(outcomes)} outcomes of {len(batch)} events")
        except Exception as error:
            failure = error if isinstance(error, StampedeError) else StampedeError(repr(error))
            outcomes = [failure] * len(batch)
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if not future.done():  # the sender may have gone away
                future.set_result(outcome)

    async def _traced(self, events: Sequence[Event]) -> Sequence[Outcome]:
        """Store events; a step of the traces of all of them, in the first one's."""
        traces = tracing.recorded(event.traceparent for event in events)
        with tracing.step("store batch", traces[0] if traces else None, traces[1:]) as step:
            if step:
                tracing.note({"messaging.batch.message_count": len(events)})
            return await self._store_batch(events)
