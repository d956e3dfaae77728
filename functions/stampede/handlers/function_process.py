"""A function as a process: what it imports, and what it runs."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial


def quicken_imports() -> None:
    """Leave out what imports do for nothing here. Call it before they begin."""
    # Nothing here multiplies matrices. numpy's library for it would start a thread for each core
    # as it is imported, a fifth of the start of a function.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Stampede has no plugin of pydantic's, which looks for them in all installed packages: 25 ms.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


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
