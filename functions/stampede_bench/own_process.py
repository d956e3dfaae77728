"""A benchmark in a process of its own: what others leave in memory does not slow it."""

import signal
import threading
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection

from stampede.errors import StampedeError
from stampede.runtime.progress import silent
from stampede.telemetry.logs import configure_logs
from stampede_bench.figures import Context, Figure, Measure

# Not a fork: it would have the locks that threads of the caller hold, but not those threads.
_SPAWN = get_context("spawn")
_TIDY_SECONDS = 60.0  # a benchmark that is ended stops its servers


def measured(measure: Measure, context: Context) -> Iterator[Figure]:
    """The figures of a benchmark, as it yields them; `measure` is a function of a module.

    Ctrl-C, or what else ends the caller's wait, ends the benchmark. It tidies up before this ends,
    or is killed after a minute.

    Raises `StampedeError` if the benchmark fails.
    """
    here, there = _SPAWN.Pipe(duplex=False)
    # The caller's progress stays here: a new process sends the lines to this one.
    process = _SPAWN.Process(
        target=_measure, args=(measure, context._replace(progress=silent), there)
    )
    process.start()
    there.close()
    try:
        while True:
            found = here.recv()
            if isinstance(found, Figure):
                yield found
            elif isinstance(found, Exception):
                raise found
            else:
                context.progress(found)
    except EOFError:
        process.join()
        if process.exitcode:
            raise StampedeError(f"ended with exit code {process.exitcode}") from None
    finally:
        process.terminate()
        process.join(_TIDY_SECONDS)
        process.kill()
        process.join()


def _measure(measure: Measure, context: Context, pipe: Connection) -> None:
    # A terminal sends Ctrl-C to both processes, and only one signal may reach the tidying up.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    configure_logs()
    lock = threading.Lock()  # threads tell their progress too

    def send(found: Figure | str | Exception) -> None:
        with lock:
            pipe.send(found)

    try:
        for figure in measure(context._replace(progress=send)):
            send(figure)
    except StampedeError as error:
        send(StampedeError(str(error)))
    except (KeyboardInterrupt, BrokenPipeError):
        pass  # the parent has ended
