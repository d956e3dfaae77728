"""A benchmark in a process of its own: what others leave in memory does not slow it."""

import signal
import threading
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection

from stampede.errors import StampedeError
from stampede_bench.figures import Context, Figure, Measure

# A fork has imported everything. The parent uses no library that has threads, so none is missing.
_FORK = get_context("fork")


def measured(measure: Measure, context: Context) -> Iterator[Figure]:
    """The figures of a benchmark, as it yields them.

    Ctrl-C, or what else ends the caller's wait, ends the benchmark; it tidies up before this ends.

    Raises `StampedeError` if the benchmark fails.
    """
    here, there = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_measure, args=(measure, context, there))
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
        process.join()


def _measure(measure: Measure, context: Context, pipe: Connection) -> None:
    # A terminal sends Ctrl-C to both processes, and only one signal may reach the tidying up.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
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
