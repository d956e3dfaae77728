"""Run `stampede` and `make` as a user does: read what they print, stop them with Ctrl-C."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from e2e.places import ROOT

# Timeouts in seconds. They catch commands that hang, and allow for a slow and busy machine.
RUN_SECONDS = 300.0
READY_SECONDS = 300.0
STOP_SECONDS = 400.0
LAST_LINES = 40  # of a command's output in the message of a failed test


class CommandResult:
    """Arguments, exit status and output of a command. Its output must show no traceback."""

    def __init__(self, arguments: list[str], status: int | None, output: str) -> None:
        self.arguments, self.status, self.output = arguments, status, output
        assert "Traceback" not in output, self.report()

    def assert_succeeded(self) -> Self:
        assert self.status == 0, self.report()
        return self

    def report(self) -> str:
        """Status and last lines. The last line comes first: a long message may be cut off."""
        lines = self.output.split("\n")[-LAST_LINES:]
        last = next((line for line in reversed(lines) if line.strip()), "no output")
        command = shlex.join(self.arguments)
        return "\n".join([f"`{command}` ended with {self.status}: {last}", *lines])


def run(*arguments: object, seconds: float = RUN_SECONDS, **env: str) -> CommandResult:
    """Run `stampede` or make until it ends. The output has both its standard streams."""
    done = subprocess.run(
        command_line(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        cwd=ROOT,
        env=environment() | env,
    )
    return CommandResult([*map(str, arguments)], done.returncode, done.stdout)


def command_line(*arguments: object) -> list[str]:
    """`make` or a module of e2e if that is the first argument, otherwise `stampede`."""
    words = [*map(str, arguments)]
    if words[0] == "make":
        return words
    program = [] if words[0].startswith("e2e.") else ["stampede"]
    return [sys.executable, "-m", *program, *words]


def environment() -> dict[str, str]:
    """This process's environment without settings of Stampede."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("STAMPEDE_", "K_"))
    }
    return inherited | {"PYTHONUNBUFFERED": "1"}


class BackgroundCommand:
    """`stampede` in the background. It is stopped at the end of the ``with`` block."""

    def __init__(self, log: Path, *arguments: object, **env: str) -> None:
        self.log = log
        self.arguments = arguments
        self.env = env

    def __enter__(self) -> Self:
        with self.log.open("w") as log:
            self.child = subprocess.Popen(
                command_line(*self.arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=environment() | self.env,
                start_new_session=True,
            )
        return self

    def __exit__(self, *exc: object) -> None:
        print("\n".join(self.output().splitlines()[-LAST_LINES:]))
        if self.child.poll() is None:
            self.stop()

    def output(self) -> str:
        return self.log.read_text()

    def wait_for(self, pattern: str, seconds: float = READY_SECONDS) -> re.Match[str]:
        """Wait until the output matches a pattern; the match."""
        until(lambda: re.search(pattern, self.output()) or self.child.poll() is not None, seconds)
        found = re.search(pattern, self.output())
        assert found, f"it never printed {pattern}: {self.result(self.child.poll()).report()}"
        return found

    def result(self, status: int | None) -> CommandResult:
        """The output so far, with an exit status."""
        return CommandResult([*map(str, self.arguments)], status, self.output())

    def descendants(self) -> list[psutil.Process]:
        """Child processes, and their children."""
        return psutil.Process(self.child.pid).children(recursive=True)

    def kill(self) -> None:
        """Kill every process at once, as a machine that loses its power."""
        descendants = self.descendants()
        os.killpg(self.child.pid, signal.SIGKILL)
        for each in descendants:
            if is_running(each):
                each.kill()
        self.child.wait()

    def stop(self, number: signal.Signals = signal.SIGINT) -> CommandResult:
        """Press Ctrl-C. Every process of its session must end, those that it just started too.

        Free ports would show less: another test's system may take a usual port at once.
        """
        descendants = self.descendants()
        os.kill(self.child.pid, number)
        try:
            status = self.child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.child.kill()
            raise
        until(lambda: not any(map(is_running, [*descendants, *session(self.child.pid)])), 60)
        return self.result(status)


def session(leader: int) -> list[psutil.Process]:
    """The processes of a session, which `leader` began."""
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError):
            if os.getsid(process.pid) == leader:
                found.append(process)
    return found


def is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until(condition: Callable[[], object], seconds: float, pause: float = 0.05) -> None:
    """Wait until a condition holds; fail after a timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition was not met within {seconds:.0f} s"
        time.sleep(pause)
