"""Lets a program end in good order after Ctrl-C or SIGTERM."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_until_stopped(
    main: Callable[[asyncio.Event], Coroutine[Any, Any, T]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """Run ``main(stop)`` and return what it returns; SIGTERM and SIGINT set `stop`."""

    async def run() -> T:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        return await main(stop)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(run())
