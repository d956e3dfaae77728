"""Group commit: while one flush is under way, the next batch gathers.

Under light load a batch is what arrives within the linger, so an alert waits little; under
heavy load it is what arrived during the last flush, so packs are large. Nobody tunes it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from stampede.errors import Overloaded, StampedeError
from stampede.events.event import Event

Outcome = StampedeError | None
Flush = Callable[[Sequence[Event]], Awaitable[Sequence[Outcome]]]


class Batcher:
    """Gathers events into batches and gives each its verdict when its batch is durable.

    Parameters
    ----------
    flush
        Stores a batch and returns a verdict per event, None for stored.
    lanes
        How many flushes may be under way at once.
    most_events, most_bytes
        Bounds of one batch; a single event may exceed the bytes.
    held_bytes
        Bytes held in all before `add` raises `Overloaded`.
    linger
        Seconds a batch waits for company.
    """

    def __init__(
        self,
        flush: Flush,
        *,
        lanes: int,
        most_events: int,
        most_bytes: int,
        held_bytes: int,
        linger: float,
    ) -> None:
        self._flush = flush
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._held_bytes = held_bytes
        self._linger = linger
        self._waiting: deque[tuple[Event, asyncio.Future[Outcome]]] = deque()
        self._waiting_bytes = 0
        self._some = asyncio.Condition()
        self._closing = False
        self.held = 0
        self._lanes = [asyncio.create_task(self._lane()) for _ in range(lanes)]

    async def add(self, event: Event) -> Outcome:
        """Wait until the event is durable, and return its verdict.

        Raises `Overloaded` at once where too much is held already.
        """
        size = len(event.data)
        if self.held and self.held + size > self._held_bytes:
            raise Overloaded(f"{self.held:,} bytes of alerts are waiting to be stored")
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((event, future))
        self._waiting_bytes += size
        self.held += size
        async with self._some:
            self._some.notify()
        try:
            return await future
        finally:
            self.held -= size

    async def close(self) -> None:
        """Flush what is waiting and end the lanes."""
        self._closing = True
        async with self._some:
            self._some.notify_all()
        await asyncio.gather(*self._lanes)

    async def _lane(self) -> None:
        while True:
            async with self._some:
                await self._some.wait_for(lambda: self._waiting or self._closing)
            if not self._waiting:
                if self._closing:
                    return
                continue
            if not self._full() and not self._closing:
                await asyncio.sleep(self._linger)
            if batch := self._take():
                await self._commit(batch)

    def _full(self) -> bool:
        return len(self._waiting) >= self._most_events or self._waiting_bytes >= self._most_bytes

    def _take(self) -> list[tuple[Event, asyncio.Future[Outcome]]]:
        batch: list[tuple[Event, asyncio.Future[Outcome]]] = []
        size = 0
        while self._waiting and len(batch) < self._most_events:
            more = len(self._waiting[0][0].data)
            if batch and size + more > self._most_bytes:
                break
            size += more
            batch.append(self._waiting.popleft())
        self._waiting_bytes -= size
        return batch

    async def _commit(self, batch: list[tuple[Event, asyncio.Future[Outcome]]]) -> None:
        try:
            verdicts = await self._flush([event for event, _ in batch])
            if len(verdicts) != len(batch):
                raise StampedeError(f"{len(verdicts)} verdicts on {len(batch)} events")
        except Exception as error:
            failure = error if isinstance(error, StampedeError) else StampedeError(repr(error))
            verdicts = [failure] * len(batch)
        for (_, future), verdict in zip(batch, verdicts, strict=True):
            if not future.done():  # the sender may have gone away
                future.set_result(verdict)
