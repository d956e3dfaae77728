"""Requests repeated in the background."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple


class RequestLog(NamedTuple):
    """Duration of each request in seconds, and the errors."""

    seconds: list[float]
    errors: list[str]


@contextmanager
def repeat(request: Callable[[], object], pause: float = 0.02) -> Iterator[RequestLog]:
    """Repeat a request in the background until the ``with`` block ends."""
    log, stop = RequestLog([], []), threading.Event()

    def run() -> None:
        while not stop.is_set():
            begin = time.monotonic()
            try:
                request()
            except Exception as error:
                log.errors.append(repr(error)[:200])
            log.seconds.append(time.monotonic() - begin)
            stop.wait(pause)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield log
    finally:
        stop.set()
        thread.join(60)
