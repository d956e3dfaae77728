"""Faults of processes: each lasts for a ``with`` block, and is mended at its end."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import psutil

from e2e.alert_rules.traffic import repeatedly
from e2e.alert_rules.watched import Watched
from e2e.faults.processes import set_clock

Fault = Callable[[Watched], AbstractContextManager[object]]

SKEW = 700  # seconds; from 15 minutes on, the store refuses all requests


def paused(name: str) -> Fault:
    """A process stands still: SIGSTOP, then SIGCONT."""

    @contextmanager
    def fault(watched: Watched) -> Iterator[None]:
        (process,) = watched.processes(name)
        process.suspend()
        try:
            yield
        finally:
            process.resume()

    return fault


def killed(name: str) -> Fault:
    """A process is killed whenever it starts again; then it may live."""

    @contextmanager
    def fault(watched: Watched) -> Iterator[None]:
        def kill() -> None:
            for process in watched.processes(name):
                process.kill()

        with repeatedly(kill, 0.2):
            yield

    return fault


@contextmanager
def killed_workers(watched: Watched) -> Iterator[None]:
    """The worker of `cutouts` is killed whenever it has stored a batch."""
    (function,) = watched.processes("cutouts")
    stored = 0.0

    def kill() -> None:
        nonlocal stored
        (flushes,) = watched.prometheus.query('stampede_flushes_total{function="cutouts"}')
        if float(flushes["value"][1]) > stored:
            stored = float(flushes["value"][1])
            for worker in function.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    worker.kill()

    with repeatedly(kill, 0.5):
        yield


@contextmanager
def wrong_clock(watched: Watched) -> Iterator[None]:
    """The clock of `reconcile` is wrong, then set."""
    file = watched.clocks / "reconcile.seconds"
    set_clock(file, SKEW)
    try:
        yield
    finally:
        set_clock(file, 0)
