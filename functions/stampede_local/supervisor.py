"""Keep child processes running, and stop them in stages."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum

from stampede.errors import SetupError
from stampede_local.process import STOP_SECONDS, Process


class State(StrEnum):
    """State of a supervised process."""

    RUNNING = "running"
    WAITING = "waiting"  # it ended and will be started again after a pause
    STOPPED = "stopped"


class Supervisor:
    """Keeps processes running: one that ends is started again after a growing pause.

    Parameters
    ----------
    report
        Called with (process, new state) at every change, from the supervisor's own thread.
    first, longest
        Pause before the first restart, in seconds. It doubles with each restart up to `longest`. A
        process that ran for `longest` seconds starts again with `first`.
    """

    def __init__(
        self,
        report: Callable[[Process, State], None] = lambda process, state: None,
        first: float = 0.5,
        longest: float = 30.0,
    ) -> None:
        self._report = report
        self._first, self._longest = first, longest
        self._watched: list[_Watched] = []
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def add(self, process: Process, stage: int = 0) -> None:
        """Keep `process` running from now on; start it if it does not run.

        `stop` stops the highest stage first, and all processes of a stage at once.
        """
        with self._change:
            self._watched.append(_Watched(process, self._first, stage))
            self._change.notify()

    def states(self) -> dict[str, State]:
        """State of each process by name, in the order in which they were added."""
        return {watched.process.name: watched.state for watched in self._watched}

    def start(self) -> None:
        """Begin to watch in a thread of its own. The children live only as long as this thread."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self._thread.start()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stop every process, stage after stage; kill those that still run after `seconds`."""
        with self._change:
            self._stopping = True
            self._change.notify()
        for stage in sorted({watched.stage for watched in self._watched}, reverse=True):
            together = [watched for watched in reversed(self._watched) if watched.stage == stage]
            with ThreadPoolExecutor(len(together)) as pool:
                list(pool.map(lambda watched: watched.process.stop(seconds), together))
            for watched in together:
                self._set_state(watched, State.STOPPED)
        if self._thread:
            self._thread.join()

    def __enter__(self) -> "Supervisor":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _set_state(self, watched: "_Watched", state: State) -> None:
        if watched.state is not state:
            watched.state = state
            self._report(watched.process, state)

    def _run(self) -> None:
        while True:
            with self._change:
                if self._stopping:
                    break
                for watched, state in list(self._next_states(time.monotonic())):
                    self._set_state(watched, state)
                self._change.wait(0.1)
        # When this thread ends, the kernel sends the children SIGTERM: let `stop` end them first.
        for watched in self._watched:
            while watched.process.running:
                time.sleep(0.02)

    def _next_states(self, now: float) -> Iterator[tuple["_Watched", State]]:
        for watched in self._watched:
            if watched.process.running:
                yield watched, State.RUNNING
                continue
            if watched.state is State.RUNNING:
                if now - watched.since > self._longest:
                    watched.pause = self._first
                watched.since = now + watched.pause
                watched.pause = min(2 * watched.pause, self._longest)
                yield watched, State.WAITING
            elif watched.state is State.STOPPED or now >= watched.since:
                watched.since = now
                try:
                    watched.process.start()
                except SetupError:  # its program was removed
                    watched.since += watched.pause
                    yield watched, State.WAITING
                else:
                    yield watched, State.RUNNING


class _Watched:
    """A supervised process: its state and, in `since`, when that began or when a pause ends."""

    def __init__(self, process: Process, pause: float, stage: int) -> None:
        self.process, self.pause, self.stage = process, pause, stage
        self.state, self.since = State.STOPPED, time.monotonic()
