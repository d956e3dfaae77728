"""A function as a process: what it imports, and what it runs."""

import gc
import os


def quicken_imports() -> None:
    """Leave out what imports do for nothing here. Call it before they begin."""
    # Nothing here multiplies matrices. numpy's library for it would start a thread for each core
    # as it is imported, a fifth of the start of a function.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Stampede has no plugin of pydantic's, which looks for them in all installed packages: 25 ms.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def run_function(name: str) -> None:
    """Run one function (or the source) until a signal stops it; settings from the environment."""
    from stampede.logs import configure_logs
    from stampede.settings import Settings

    configure_logs()
    if name == "source":
        from stampede.events.source import main as run_source

        gc.enable()
        run_source(Settings())
        return
    from stampede.functions.server import serve

    serve(name, Settings())
