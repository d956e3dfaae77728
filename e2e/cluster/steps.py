"""Run steps and commands: progress with seconds, and the end of the log if one fails."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from e2e.cluster.places import CLUSTER

_BEGIN = time.monotonic()
_PROGRESS_SECONDS = 20.0  # between lines about a command that still runs


class Failed(Exception):
    """A step failed. The message names it, shows the end of its log, and gives advice."""


@contextmanager
def exclusive_use() -> Iterator[None]:
    """Hold the lock that keeps other commands from using the cluster.

    Raises
    ------
    Failed
        Another process holds it.
    """
    CLUSTER.mkdir(parents=True, exist_ok=True)
    with (CLUSTER / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = Path(lock.name).read_text()
            raise Failed(
                f"another command uses the cluster, process {pid}: wait for it, or stop it"
            ) from None
        lock.truncate(0)
        print(os.getpid(), end="", file=lock, flush=True)
        yield


def log_progress(line: str) -> None:
    """Print a line of progress, with the seconds since the start of this process."""
    sys.stderr.write(f"{time.monotonic() - _BEGIN:7.1f} s  {line}\n")  # whole, whatever the thread
    sys.stderr.flush()


@contextmanager
def step(name: str) -> Iterator[None]:
    """Print the name of a step when it begins, and its duration if that is over 2 s."""
    begin = time.monotonic()
    log_progress(name)
    yield
    if (took := time.monotonic() - begin) > 2:
        log_progress(f"  {took:.1f} s for {name}")


def run(
    *command: object,
    log: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    advice: str = "",
) -> str:
    """Run a command; its standard output. Its standard error goes to `log`.

    The command has its own process group, which is killed when the command or this process ends.

    Raises
    ------
    Failed
        The program is not installed, or its status is not 0.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    line = [str(word) for word in command]
    if shutil.which(line[0]) is None:
        raise Failed(f"this needs {line[0]}" + (f"\n{advice}" if advice else ""))
    begin = reported = time.monotonic()
    with log.open("wb") as errors, tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            line,
            cwd=cwd,
            env=os.environ | dict(env or {}),
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            process_group=0,
        )
        try:
            if child.stdin:
                with suppress(BrokenPipeError):
                    child.stdin.write(stdin or b"")
                    child.stdin.close()
            while child.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(0.5)
                if time.monotonic() - reported > _PROGRESS_SECONDS:
                    reported = time.monotonic()
                    log_progress(
                        f"  still running after {reported - begin:.0f} s: {tail(log, 1)[:90]}"
                    )
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    if child.returncode:
        raise Failed(
            f"`{' '.join(line)[:200]}` failed with status {child.returncode}; "
            f"the end of {log}:\n{text[-1000:]}{tail(log)}" + (f"\n{advice}" if advice else "")
        )
    return text


def wait_until(ready: Callable[[], bool], seconds: float, failed: Callable[[], Failed]) -> None:
    """Wait until `ready` returns true. Raises the exception that `failed` makes after `seconds`."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise failed()
        time.sleep(0.1)


def tail(log: Path, lines: int = 20) -> str:
    """The last lines of a log."""
    try:
        text = log.read_bytes()[-20_000:].decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
