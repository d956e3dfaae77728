"""Sends a long stream of items concurrently, with a bounded number and size in flight."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import TypeVar

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.events.delivery.sink import Abandoned

READ_ITEMS = 16  # items read by one call of a thread; a dead letter may have megabytes

T = TypeVar("T")


async def send_all(
    items: Iterator[T],
    send: Callable[[T], Awaitable[None]],
    size: Callable[[T], int],
    settings: Settings,
    stop: asyncio.Event,
) -> bool:
    """Send every item; return False if `stop` was set first.

    Stopping abandons the items in flight. That is harmless: the same event is stored once,
    however often it is sent.

    Parameters
    ----------
    items
        Read in a thread, so that reading does not hold up the items in flight.
    send
        Sends one item, and returns when the sink has answered.
    size
        Bytes of an item.

    Raises
    ------
    StampedeError
        What `items` or `send` raised. The items in flight are abandoned.
    """
    limiter = SendLimiter(max(1, settings.in_flight // 4), settings.in_flight_bytes)
    complete = True

    async def send_one(item: T) -> None:
        try:
            await send(item)
        finally:
            await limiter.release(size(item))

    try:
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(_abandon_when_set(stop))
            while batch := await asyncio.to_thread(lambda: list(islice(items, READ_ITEMS))):
                for item in batch:
                    await limiter.acquire(size(item))
                    tasks.create_task(send_one(item))
            await limiter.wait_until_idle()
            watch.cancel()
    except* Abandoned:
        complete = False
    except* StampedeError as group:
        raise group.exceptions[0] from None
    return complete


class SendLimiter:
    """Limits the items in flight by number and by bytes; a single item may have any size."""

    def __init__(self, most_items: int, most_bytes: int) -> None:
        self._most_items, self._most_bytes = most_items, most_bytes
        self._items = self._bytes = 0
        self._changed = asyncio.Condition()

    async def acquire(self, size: int) -> None:
        """Wait until an item of `size` bytes fits, and count it as in flight."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._fits(size))
            self._items += 1
            self._bytes += size

    async def release(self, size: int) -> None:
        """Count an item of `size` bytes as no longer in flight."""
        async with self._changed:
            self._items -= 1
            self._bytes -= size
            self._changed.notify_all()

    async def wait_until_idle(self) -> None:
        """Wait until nothing is in flight."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._items)

    def _fits(self, size: int) -> bool:
        if not self._items:
            return True
        return self._items < self._most_items and self._bytes + size <= self._most_bytes


async def _abandon_when_set(stop: asyncio.Event) -> None:
    await stop.wait()
    raise Abandoned
