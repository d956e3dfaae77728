"""Child processes: each has a log, is stopped by its own pid and never outlives its parent."""

import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from stampede.errors import SetupError

# More than a function takes that reads Kafka: `events.kafka.consumer.DRAIN_SECONDS`, then
# `handlers.server.DRAIN_SECONDS`.
STOP_SECONDS = 95.0

_PARENTAL = ("setpriv", "--pdeathsig", "TERM", "--")


def wait_until(
    ready: Callable[[], bool], process: "Process", seconds: float = 150.0, pause: float = 0.05
) -> None:
    """Wait until `ready()` is true.

    Raises
    ------
    SetupError
        The process ended, or `seconds` passed; the message has the end of its log.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if not process.running:
            raise process.failure(f"ended with status {process.status}")
        if time.monotonic() > deadline:
            raise process.failure(f"was not ready after {seconds:.0f} s")
        time.sleep(pause)


@contextmanager
def started(process: "Process", ready: Callable[[], bool]) -> Iterator["Process"]:
    """A process that runs during the block, which begins when `ready()` is true.

    Raises `SetupError` as `wait_until`.
    """
    process.start()
    try:
        wait_until(ready, process)
        yield process
    finally:
        process.stop()


def answers(url: str) -> bool:
    """Whether an HTTP server answers at a URL, whatever it says."""
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


class Process:
    """One child process.

    It has its own process group, so Ctrl-C reaches only the parent, which then stops its children
    in order. On Linux the kernel sends it SIGTERM when the thread that called `start` ends, for
    whatever reason: call `start` from a thread that lives as long as the child should.

    Parameters
    ----------
    name
        Its name in messages.
    command
        Program and arguments.
    log
        File to which its standard output and error are appended.
    env
        Variables to add to this process's own environment.
    inherits
        File descriptors of this process that the child gets too.
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
        self._swept = False  # its process group was killed after it ended

    @property
    def pid(self) -> int | None:
        """Process id; None before the first start."""
        return self._child.pid if self._child else None

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs and before the first start.

        If it has ended, this kills the processes that it started itself.
        """
        if self._child is None:
            return None
        status = self._child.poll()
        if status is not None and not self._swept:
            # Now, since the kernel may give the number to another process later.
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
            This machine has no such program.
        """
        if self.running:
            return
        if shutil.which(self.command[0]) is None:
            raise SetupError(f"cannot start {self.name}: there is no program {self.command[0]}")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._swept = False
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                # setpriv (util-linux) sets PR_SET_PDEATHSIG and then execs the program. Python's
                # preexec_fn could do that too, but may deadlock in a process with threads.
                [*(_PARENTAL if shutil.which("setpriv") else ()), *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | self.env,
                pass_fds=self._inherits,
                process_group=0,
            )

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Send SIGTERM, and SIGKILL after `seconds`. Harmless if it has ended."""
        if self._child is not None and self.running:
            self._child.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(seconds)
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL to it and to the processes that it started itself."""
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
        """An error whose message is the process's name, `what` and the end of its log."""
        return SetupError(f"{self.name} {what}; the end of {self.log}:\n{self.tail()}")
