"""A function as a process: all that it needs is imported, then it runs."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

COLLECT_AFTER = 20_000
"""Objects that are made before Python looks for cycles among them: those of about a hundred events.
By default it does at each 700, 10 % of the CPU time of a function that takes alerts."""


def run_function(name: str) -> None:
    """Run one function (or the source) until a signal stops it; settings from the environment."""
    with _without_collections():
        run = _made(name)
    run()


@contextmanager
def _without_collections() -> Iterator[None]:
    """No garbage collection within, and none afterwards of what is made within.

    Imports and an app stay as long as the process. To look through them again and again for what
    does not takes 55 ms.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(COLLECT_AFTER)
        gc.enable()


def _made(name: str) -> Callable[[], None]:
    """What runs the function, with all that it needs imported."""
    from stampede.config.settings import Settings
    from stampede.telemetry.logs import configure_logs

    configure_logs()
    if name == "source":
        from stampede.events.kafka.source import main as run_source

        return partial(run_source, Settings())
    from stampede.handlers.server import make_server

    return make_server(name, Settings()).run
