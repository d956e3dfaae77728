"""What goes on in the background of a test."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple


class RequestLog(NamedTuple):
    """Duration of each request in seconds, and the errors."""

    seconds: list[float]
    errors: list[str]


@contextmanager
def background(run: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run a function in a thread; set its event when the ``with`` block ends, and wait for it.

    Raises what the function raised.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, stop)
        try:
            yield
        finally:
            stop.set()
        running.result()


@contextmanager
def repeat(request: Callable[[], object], pause: float = 0.02) -> Iterator[RequestLog]:
    """Repeat a request until the ``with`` block ends."""
    log = RequestLog([], [])

    def run(stop: threading.Event) -> None:
        while not stop.is_set():
            begin = time.monotonic()
            try:
                request()
            except Exception as error:
                log.errors.append(repr(error)[:200])
            log.seconds.append(time.monotonic() - begin)
            stop.wait(pause)

    with background(run):
        yield log
