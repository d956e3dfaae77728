"""The type of the callables to which long operations report each step."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str], None]
"""Takes a line of text at each step."""

SLOW_SECONDS = 1.5
"""After this a person wonders what a command waits for."""


def silent(line: str) -> None:
    """A `Progress` that shows nothing."""


@contextmanager
def telling_if_slow(progress: Progress, line: str) -> Iterator[None]:
    """Report a line if the block takes longer than `SLOW_SECONDS`, from a thread of its own."""
    timer = threading.Timer(SLOW_SECONDS, progress, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
