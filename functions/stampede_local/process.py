"""Child processes: stopped by their own pid, with a log, and never outliving their parent."""

import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from enum import StrEnum
from functools import cache
from pathlib import Path

from stampede.errors import SetupError

# Below the range from which Linux gives ports to outgoing connections (32768 up), so that
# nobody is given a port between our look at it and the server's bind.
_PORTS = range(20_000, 32_000)

STOP_SECONDS = 75.0  # more than `functions.serving.DRAIN_SECONDS`

_given: set[int] = set()  # ports, by `free_port` of this process
_giving = threading.Lock()

_PARENTAL = ("setpriv", "--pdeathsig", "TERM", "--")


def free_port(span: int = 1) -> int:
    """A TCP port of 127.0.0.1 that is free now, as are the `span` - 1 ports after it.

    Nobody else is given any of them while this process lives, in it or in another of this user, as
    there may be seconds until a server listens.

    Raises
    ------
    SetupError
        There is none.
    """
    for _ in range(1000):
        first = random.choice(_PORTS)
        ports = range(first, first + span)
        with _giving:
            if _given.isdisjoint(ports) and all(map(_is_free, ports)) and _taken(first, span):
                _given.update(ports)
                return first
    raise SetupError(f"no {span} free TCP ports in a row on 127.0.0.1")


def _taken(port: int, span: int) -> bool:
    """Lock these bytes of a file that stands for all ports; the kernel undoes it at our end.

    Such a lock keeps other processes out, never this one: hence `_given`.
    """
    try:
        fcntl.lockf(_lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, span, port)
    except OSError:
        return False
    return True


@cache
def _lock_file() -> int:
    path = Path(tempfile.gettempdir(), f"stampede-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def require_free(*ports: int) -> None:
    """Raise `SetupError` unless nobody listens on any of `ports` of 127.0.0.1."""
    for port in ports:
        if not _is_free(port):
            raise SetupError(f"port {port} of 127.0.0.1 is taken: choose another, or end its owner")


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        # As every server here sets it: a port that only has connections fading away is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_until(
    ready: Callable[[], bool], process: "Process", seconds: float = 150.0, pause: float = 0.05
) -> None:
    """Wait until `ready` holds, as long as `process` runs.

    Raises
    ------
    SetupError
        The process ended, or `seconds` passed; with the last lines of its log.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if not process.running:
            raise process.failure(f"ended with status {process.status}")
        if time.monotonic() > deadline:
            raise process.failure(f"was not ready after {seconds:.0f} s")
        time.sleep(pause)


class Process:
    """One child process, not started until `start`.

    It has its own process group, so that Ctrl-C reaches only the parent, which then stops its
    children in order. It gets SIGTERM from the kernel when the thread that started it ends,
    however that came about (on Linux): start it from a thread that lives as long as the child
    should.

    Parameters
    ----------
    name
        What people call it; used in messages.
    command
        Program and arguments.
    log
        File that its standard output and error are appended to.
    env
        Variables to add to this process's own environment.
    inherits
        File descriptors of this process that it has too.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        inherits: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self.env = dict(env or {})
        self._inherits = inherits
        self._child: subprocess.Popen[bytes] | None = None
        self._swept = False  # its group was ended after it

    @property
    def pid(self) -> int | None:
        """Its process id, None before the first start."""
        return self._child.pid if self._child else None

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs and before the first start.

        Where it has ended, what it started itself is ended too.
        """
        if self._child is None:
            return None
        status = self._child.poll()
        if status is not None and not self._swept:
            # At once: later the number might be another's.
            self._swept = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)
        return status

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._child is not None and self.status is None

    def start(self) -> None:
        """Start it, or do nothing if it runs.

        Raises
        ------
        SetupError
            The program is not on this machine.
        """
        if self.running:
            return
        if shutil.which(self.command[0]) is None:
            raise SetupError(f"cannot start {self.name}: there is no program {self.command[0]}")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._swept = False
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                # setpriv (util-linux) sets PR_SET_PDEATHSIG and then *becomes* the program;
                # Python's own way, preexec_fn, may deadlock in a process with threads.
                [*(_PARENTAL if shutil.which("setpriv") else ()), *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | self.env,
                pass_fds=self._inherits,
                process_group=0,
            )

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Ask it to end (SIGTERM); kill it after `seconds`. Harmless if it has ended."""
        if self._child is not None and self.running:
            self._child.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(seconds)
            self.kill()

    def kill(self) -> None:
        """End it, and whatever it started itself, at once (SIGKILL)."""
        if self._child is not None and self.running:
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()

    def tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - 16_384))
                text = log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def failure(self, what: str) -> SetupError:
        """An error saying that this process `what`, with the end of its log."""
        return SetupError(f"{self.name} {what}; the end of {self.log}:\n{self.tail()}")


class State(StrEnum):
    """How a supervised process is."""

    RUNNING = "running"
    WAITING = "waiting"  # it died and is started again after a pause
    STOPPED = "stopped"


class Supervisor:
    """Keeps processes running: one that ends is started again after a growing pause.

    Parameters
    ----------
    report
        Called, from the supervisor's own thread, with (process, new state) at every change; what
        it needs to say more is in the process (`status`, `tail`).
    first, longest
        Seconds before the first restart, doubled at each up to the longest; a process that
        ran for `longest` seconds begins anew.
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
        """Watch `process` from now on; it is started if it does not run.

        Those of the highest stage are the first to be stopped, all at once.
        """
        with self._change:
            self._watched.append(_Watched(process, self._first, stage))
            self._change.notify()

    def states(self) -> dict[str, State]:
        """How each process is, by name, in the order in which they were added."""
        return {each.process.name: each.state for each in self._watched}

    def start(self) -> None:
        """Begin to watch, in a thread of its own (which is what the children depend on)."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self._thread.start()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stop every process, stage after stage, each given `seconds` before it is killed."""
        with self._change:
            self._stopping = True
            self._change.notify()
        for stage in sorted({each.stage for each in self._watched}, reverse=True):
            now = [each for each in reversed(self._watched) if each.stage == stage]
            with ThreadPoolExecutor(len(now)) as pool:
                list(pool.map(lambda each: each.process.stop(seconds), now))
            for each in now:
                self._to(each, State.STOPPED)
        if self._thread:
            self._thread.join()

    def __enter__(self) -> "Supervisor":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _to(self, each: "_Watched", state: State) -> None:
        if each.state is not state:
            each.state = state
            self._report(each.process, state)

    def _run(self) -> None:
        while True:
            with self._change:
                if self._stopping:
                    break
                for each, state in list(self._look(time.monotonic())):
                    self._to(each, state)
                self._change.wait(0.1)
        # The children are told by the kernel to end when this thread does: let `stop` do it.
        for each in self._watched:
            while each.process.running:
                time.sleep(0.02)

    def _look(self, now: float) -> Iterator[tuple["_Watched", State]]:
        for each in self._watched:
            if each.process.running:
                yield each, State.RUNNING
                continue
            if each.state is State.RUNNING:
                if now - each.since > self._longest:
                    each.pause = self._first
                each.since = now + each.pause
                each.pause = min(2 * each.pause, self._longest)
                yield each, State.WAITING
            elif each.state is State.STOPPED or now >= each.since:
                each.since = now
                try:
                    each.process.start()
                except SetupError:  # its program is gone
                    each.since += each.pause
                    yield each, State.WAITING
                else:
                    yield each, State.RUNNING


class _Watched:
    """A process under supervision: its state, and since when (or until when) it is in it."""

    def __init__(self, process: Process, pause: float, stage: int) -> None:
        self.process, self.pause, self.stage = process, pause, stage
        self.state, self.since = State.STOPPED, time.monotonic()
