"""Memory that nothing uses goes back to the system.

The C library keeps what was freed, and so does Arrow's own allocator, each thread for itself. After
16 large queries whose clients left these were 500 MB, for ever. So Arrow uses the C library, and
that gives back. docs/measurements/0059-strangers.md says what it costs.
"""

import asyncio
import ctypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pyarrow as pa

SECONDS = 10.0


def give_back() -> None:
    """Give back what is free, wherever it lies between used memory."""
    with suppress(AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


@asynccontextmanager
async def giving_back(seconds: float = SECONDS) -> AsyncIterator[None]:
    """Give back from time to time, while the context lasts."""

    async def go_on() -> None:
        while True:
            await asyncio.sleep(seconds)
            await asyncio.to_thread(give_back)

    pa.set_memory_pool(pa.system_memory_pool())
    task = asyncio.create_task(go_on())
    try:
        yield
    finally:
        task.cancel()
