"""What is being done, for whom waits: each step with its seconds, a failed one with its log."""

import fcntl
import os
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
_PATIENCE = 20.0  # seconds of silence before it is said that a step still runs


class Failed(Exception):
    """A step failed; the message says which, shows the end of its log, and what to do."""


@contextmanager
def alone() -> Iterator[None]:
    """Whoever makes, changes or tests the cluster is the only one. Raises `Failed` if not."""
    CLUSTER.mkdir(parents=True, exist_ok=True)
    with (CLUSTER / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = Path(lock.name).read_text()
            said = f"another command uses the cluster, process {pid}: wait for it, or stop it"
            raise Failed(said) from None
        lock.truncate(0)
        print(os.getpid(), end="", file=lock, flush=True)
        yield


def say(line: str) -> None:
    """A line of progress, with the seconds since the beginning."""
    print(f"{time.monotonic() - _BEGIN:7.1f} s  {line}", file=sys.stderr, flush=True)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Say what begins, and what it took."""
    begin = time.monotonic()
    say(name)
    yield
    if (took := time.monotonic() - begin) > 2:
        say(f"  {took:.1f} s for {name}")


def run(
    *command: object,
    log: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    advice: str = "",
) -> str:
    """Run a command, which writes into `log`; what it wrote to standard output.

    It has a process group of its own, which ends with it, and with us.

    Raises
    ------
    Failed
        Its status is not 0.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    line = [str(word) for word in command]
    begin = spoken = time.monotonic()
    with log.open("wb") as errors, tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            line,
            cwd=cwd,
            env=os.environ | dict(env or {}),
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=said,
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
                if time.monotonic() - spoken > _PATIENCE:
                    spoken = time.monotonic()
                    say(f"  still at it after {spoken - begin:.0f} s: {tail(log, 1)[:90]}")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        said.seek(0)
        text = said.read().decode(errors="replace")
    if child.returncode:
        raise Failed(
            f"`{' '.join(line)[:200]}` failed with status {child.returncode}; "
            f"the end of {log}:\n{text[-1000:]}{tail(log)}" + (f"\n{advice}" if advice else "")
        )
    return text


def wait_until(ready: Callable[[], bool], seconds: float, failed: Callable[[], Failed]) -> None:
    """Wait until `ready` holds; raise what `failed` makes if it does not in time."""
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
