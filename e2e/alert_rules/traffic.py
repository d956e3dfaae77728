"""What goes on while servers fail: something that is done at intervals, alerts that are sent."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import psutil

from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.write import write

JOIN_SECONDS = 1.0  # for a thread; it is a daemon, so none holds up the end of a test


@contextmanager
def repeatedly(act: Callable[[], object], seconds: float) -> Iterator[None]:
    """Do something at intervals until the block ends.

    A server may be away, a process may end, and a response may be empty meanwhile.
    """
    stop = threading.Event()

    def go_on() -> None:
        while not stop.wait(seconds):
            with suppress(OSError, ValueError, psutil.Error):
                act()

    with _meanwhile(go_on, stop):
        yield


@contextmanager
def sending(alerts: Iterator[SimulatedAlert], kafka: str) -> Iterator[None]:
    """Send alerts to Kafka, as fast as they come, until the block ends."""
    stop = threading.Event()

    def until_stopped() -> Iterator[SimulatedAlert]:
        for alert in alerts:
            if stop.is_set():
                return
            yield alert

    with _meanwhile(partial(write, until_stopped(), f"kafka://{kafka}"), stop):
        yield


@contextmanager
def _meanwhile(act: Callable[[], object], stop: threading.Event) -> Iterator[None]:
    """Run a function in a thread; `stop` is set at the end of the block, to end it."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(JOIN_SECONDS)
