"""What a user does: runs `stampede`, reads what it says, asks over HTTP, presses Ctrl-C."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from stampede_local.ports import free_port

ROOT = Path(__file__).parents[1]
REAL = ROOT.parent / "shared" / "data"
CHROMIUM = shutil.which("chromium")

# Deadlines, in seconds, are for what hangs: a slow and busy machine is waited for.
RUN_SECONDS = 300.0
READY_SECONDS = 300.0
STORED_SECONDS = 400.0
STOP_SECONDS = 400.0  # what Ctrl-C may take
LAST_LINES = 40  # of what a command said are told when it failed


class Ended:
    """A command that has ended: its words, its status, what it said."""

    def __init__(self, words: list[str], status: int | None, said: str) -> None:
        self.words, self.status, self.said = words, status, said
        assert "Traceback" not in said, self.account()

    def assert_done(self) -> "Ended":
        """That it did what it was told."""
        assert self.status == 0, self.account()
        return self

    def account(self) -> str:
        """How it ended: its last line first, since a long log may be cut anywhere."""
        lines = self.said.split("\n")[-LAST_LINES:]
        last = next((line for line in reversed(lines) if line.strip()), "nothing")
        return "\n".join([f"`{shlex.join(self.words)}` ended with {self.status}: {last}", *lines])


def run(*arguments: object, seconds: float = RUN_SECONDS, **env: str) -> Ended:
    """Run `stampede`, or make, to its end; standard output and error in one."""
    done = subprocess.run(
        command(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        cwd=ROOT,
        env=environment() | env,
    )
    return Ended([*map(str, arguments)], done.returncode, done.stdout)


def command(*arguments: object) -> list[str]:
    program = ["make"] if arguments[0] == "make" else [sys.executable, "-m", "stampede"]
    return [*program, *map(str, arguments[arguments[0] == "make" :])]


def environment() -> dict[str, str]:
    """Without the settings of whoever runs the tests."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("STAMPEDE_", "K_"))
    } | {"PYTHONUNBUFFERED": "1"}


class Running:
    """A command that runs, told to stop at the end of a ``with``."""

    def __init__(self, log: Path, *arguments: object, **env: str) -> None:
        self.log = log
        self.arguments = arguments
        self.env = env

    def __enter__(self) -> "Running":
        with self.log.open("w") as out:
            self.child = subprocess.Popen(
                command(*self.arguments),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=environment() | self.env,
                start_new_session=True,
            )
        return self

    def __exit__(self, *exc: object) -> None:
        print("\n".join(self.said().splitlines()[-LAST_LINES:]))
        if self.child.poll() is None:
            self.stop()

    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, pattern: str, seconds: float = READY_SECONDS) -> re.Match[str]:
        """Wait until it has said something."""
        until(lambda: re.search(pattern, self.said()) or self.child.poll() is not None, seconds)
        found = re.search(pattern, self.said())
        assert found, f"it never said {pattern}: {self.ended(self.child.poll()).account()}"
        return found

    def ended(self, status: int | None) -> "Ended":
        """What it said until now."""
        return Ended([*map(str, self.arguments)], status, self.said())

    def family(self) -> list[psutil.Process]:
        """Its child processes, and theirs."""
        return psutil.Process(self.child.pid).children(recursive=True)

    def stop(self, number: signal.Signals = signal.SIGINT) -> Ended:
        """Press Ctrl-C; nothing of it is left."""
        family = self.family()
        ports = {
            each.laddr.port
            for process in family
            for each in connections(process)
            if each.status == psutil.CONN_LISTEN
        }
        os.kill(self.child.pid, number)
        try:
            status = self.child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.child.kill()
            raise
        until(lambda: not any(alive(process) for process in family), 60)
        assert not [port for port in ports if listens(port)]
        return self.ended(status)


class Up(Running):
    """`stampede up`, ready."""

    def __init__(self, data: Path, *options: object, **env: str) -> None:
        self.data = data
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__(
            data.with_name(f"{data.name}-{self.port}.log"),
            *("up", "--data", data, "--port", self.port, *options),
            **env,
        )

    def __enter__(self) -> "Up":
        super().__enter__()
        try:
            self.wait_for(f"ready: {self.url}/")
        except BaseException:
            self.__exit__()
            raise
        return self

    @property
    def kafka(self) -> str:
        return self.wait_for(r"Kafka at (\S+)")[1]

    def processes(self, name: str) -> list[psutil.Process]:
        """Its children of that name: of a function, of a server, or ``second-`` and a server."""
        found = []
        for process in psutil.Process(self.child.pid).children():
            with suppress(psutil.NoSuchProcess):  # or a zombie
                if name in names_of(process.cmdline()):
                    found.append(process)
        return found

    def assert_back(self, *names: str) -> None:
        """That each runs again; one that died often is started only after a while."""
        until(lambda: all(map(self.processes, names)), READY_SECONDS)

    def audit(self, *arguments: str) -> Ended:
        return run("audit", *arguments, "--data", self.data)

    def wait_until_stored(self, *arguments: str, seconds: float = STORED_SECONDS) -> Ended:
        """Until `stampede audit` finds nothing missing."""
        deadline = time.monotonic() + seconds
        while (audit := self.audit(*arguments)).status:
            assert time.monotonic() < deadline, audit.account()
            time.sleep(1)
        assert "nothing is missing" in audit.said
        return audit


def names_of(line: list[str]) -> tuple[str, ...]:
    """What the process of that command line is called."""
    if "kafka.Kafka" in line:
        return ("kafka",)
    if "serve" in line:
        return (line[-1],)
    second = any("/second-site/" in word for word in line)
    return (f"second-{line[0]}",) if second else tuple(line[:1])


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def connections(process: psutil.Process) -> list:
    try:
        return process.net_connections("tcp")
    except psutil.NoSuchProcess:
        return []


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(holds: Callable[[], object], seconds: float, pause: float = 0.05) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"it did not come to pass in {seconds:.0f} s"
        time.sleep(pause)


def get(url: str, **headers: str) -> bytes:
    """What curl would print."""
    with urllib.request.urlopen(
        urllib.request.Request(url, headers=headers), timeout=120
    ) as answer:
        return answer.read()


def get_json(url: str) -> dict:
    return json.loads(get(url))


def stored_counts(audit: Ended) -> dict[str, tuple[int, int, int]]:
    """Received, stored and dead-lettered by table, out of what `audit` prints."""
    sums: dict[str, tuple[int, int, int]] = {}
    for line in audit.said.splitlines():
        if found := re.match(r"(cutouts|detections)\s+\S+\s+\d+" + r"\s+([\d,]+)" * 4, line):
            more = [int(number.replace(",", "")) for number in found.groups()[1:4]]
            before = sums.get(found[1], (0, 0, 0))
            sums[found[1]] = tuple(a + b for a, b in zip(before, more, strict=True))  # type: ignore
    return sums
