"""Group commit: while one batch is being stored, the next one fills.

A lone alert waits for the linger alone. While alerts keep coming, a batch waits up to a second for
more of them, because ten small batches cost several times the CPU and requests of a large one.
Under heavy load it is what arrived while the last batch was stored. So packs are large, and the
size of a batch needs no tuning (docs/adr/0052-batches-of-a-stream.md).
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Self

from stampede.errors import StampedeError
from stampede.events.cloudevents.event import Event
from stampede.telemetry import tracing

QUIET_GAPS = 4  # a stream has paused if nothing came for as many of its usual gaps
SMOOTHED = 8  # gaps that the usual one is the mean of, about
LOOK_SECONDS = 0.05  # a batch that is full waits no longer than this

Outcome = StampedeError | None
"""The result for one event: None if it is durable, otherwise the error to answer with."""

StoreBatch = Callable[[Sequence[Event]], Awaitable[Sequence[Outcome]]]


class Waiting(NamedTuple):
    """An event, what its sender waits for, and when it came (the event loop's time)."""

    event: Event
    outcome: asyncio.Future[Outcome]
    came: float


class Pace:
    """How fast events come.

    Attributes
    ----------
    last
        When the last event came (s).
    gap
        Seconds between events: the mean of the last ones, or the last gap if that was longer.
        Infinite after a lone event.
    """

    def __init__(self) -> None:
        self.last = -math.inf
        self.gap = self._mean = math.inf

    def note(self, now: float, lone: bool) -> None:
        """Note an event that came `now` (s), a lone one if no other waits or is being stored.

        A sender that has one event in flight sends only lone ones, however fast.
        """
        gap, self.last = now - self.last, now
        if lone:
            self.gap = self._mean = math.inf
            return
        known = math.isfinite(self._mean)
        self._mean = self._mean + (gap - self._mean) / SMOOTHED if known else gap
        self.gap = max(gap, self._mean)


class Batcher:
    """Collects events into batches and responses each event when its batch is durable.

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
        Seconds that a batch waits after its last event, at least.
    most_linger
        Seconds that an event waits at most while others keep coming. Not less than `linger`.
    """

    def __init__(
        self,
        store_batch: StoreBatch,
        *,
        concurrency: int,
        most_events: int,
        most_bytes: int,
        linger: float,
        most_linger: float,
    ) -> None:
        self._store_batch = store_batch
        self._concurrency = concurrency
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._linger = linger
        self._most_linger = max(linger, most_linger)
        self._waiting: deque[Waiting] = deque()
        self._waiting_bytes = 0
        self._pace = Pace()
        self._unanswered = 0  # events that wait or are being stored
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
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        now = loop.time()
        self._waiting.append(Waiting(event, future, now))
        self._waiting_bytes += event.size
        self._pace.note(now, lone=not self._unanswered)
        self._unanswered += 1
        self._changed.set()
        try:
            return await future
        finally:
            self._unanswered -= 1

    async def _store_batches(self) -> None:
        while True:
            while not (self._waiting or self._closing):
                self._changed.clear()
                await self._changed.wait()
            if not self._waiting:
                return  # closing
            await self._fill()
            if batch := self._next_batch():
                await self._store(batch)

    async def _fill(self) -> None:
        """Wait for more events, while they keep coming and none has waited for too long."""
        now = asyncio.get_running_loop().time
        while self._waiting and not (self._full() or self._closing):
            quiet = QUIET_GAPS * self._pace.gap
            if quiet > self._most_linger:  # few others would come in time
                quiet = 0.0
            until = self._pace.last + max(self._linger, quiet)
            left = min(until, self._waiting[0].came + self._most_linger) - now()
            if left <= 0:
                return
            await asyncio.sleep(min(left, LOOK_SECONDS))

    def _full(self) -> bool:
        return len(self._waiting) >= self._most_events or self._waiting_bytes >= self._most_bytes

    def _next_batch(self) -> list[Waiting]:
        batch: list[Waiting] = []
        batch_bytes = 0
        while self._waiting and len(batch) < self._most_events:
            size = self._waiting[0].event.size
            if batch and batch_bytes + size > self._most_bytes:
                break
            batch_bytes += size
            batch.append(self._waiting.popleft())
        self._waiting_bytes -= batch_bytes
        return batch

    async def _store(self, batch: list[Waiting]) -> None:
        outcomes: Sequence[Outcome]
        try:
            outcomes = await self._traced([each.event for each in batch])
            if len(outcomes) != len(batch):
                raise StampedeError(f"{len(outcomes)} outcomes of {len(batch)} events")
        except Exception as error:
            failure = error if isinstance(error, StampedeError) else StampedeError(repr(error))
            outcomes = [failure] * len(batch)
        for each, outcome in zip(batch, outcomes, strict=True):
            if not each.outcome.done():  # the sender may have gone away
                each.outcome.set_result(outcome)

    async def _traced(self, events: Sequence[Event]) -> Sequence[Outcome]:
        """Store events; a step of the traces of all of them, in the first one's."""
        traces = tracing.recorded(event.traceparent for event in events)
        with tracing.step("store batch", traces[0] if traces else None, traces[1:]) as step:
            if step:
                tracing.note({"messaging.batch.message_count": len(events)})
            return await self._store_batch(events)
