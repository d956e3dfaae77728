"""`stampede up`, `read` at its second site, and the counts that `stampede audit` prints."""

import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from e2e.commands import READY_SECONDS, BackgroundCommand, CommandResult, run, until
from stampede.config.settings import Settings
from stampede.events.http.probes import is_ready
from stampede_local.ports import free_port

STORED_SECONDS = 400.0  # timeout; allows for a slow and busy machine


class StampedeUp(BackgroundCommand):
    """`stampede up`, ready when the ``with`` block begins."""

    def __init__(self, data: Path, *options: object, **env: str) -> None:
        self.data = data
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__(
            data.with_name(f"{data.name}-{self.port}.log"),
            *("up", "--data", data, "--port", self.port, *options),
            **env,
        )

    def __enter__(self) -> Self:
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
        """Child processes with a name of `process_name`."""
        found = []
        for process in psutil.Process(self.child.pid).children():
            with suppress(psutil.NoSuchProcess):  # also raised for a zombie
                if name == process_name(process.cmdline()):
                    found.append(process)
        return found

    def assert_restarted(self, *names: str) -> None:
        """Wait until all these processes run. One that died often is restarted with a delay."""
        until(lambda: all(map(self.processes, names)), READY_SECONDS)

    def audit(self, *arguments: str) -> CommandResult:
        return run("audit", *arguments, "--data", self.data)

    def wait_until_stored(self, *arguments: str, seconds: float = STORED_SECONDS) -> CommandResult:
        """Wait until `stampede audit` finds nothing missing or in flight; its result."""
        deadline = time.monotonic() + seconds
        while (audit := self.audit(*arguments)).status or "in flight" in audit.output:
            assert time.monotonic() < deadline, audit.report()
            time.sleep(1)
        assert "nothing is missing" in audit.output
        return audit


class SecondSiteRead(BackgroundCommand):
    """`stampede serve read` at the second site, without access to the first."""

    def __init__(self, log: Path, settings: Settings) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        super().__init__(
            *(log, "serve", "read"),
            STAMPEDE_PORT=str(port),
            STAMPEDE_STORE=settings.replica,
            STAMPEDE_ACCESS_KEY=settings.replica_access_key,
            STAMPEDE_SECRET_KEY=settings.replica_secret_key.get_secret_value(),
        )

    def __enter__(self) -> Self:
        super().__enter__()
        until(lambda: is_ready(self.url) or self.child.poll() is not None, READY_SECONDS)
        return self


def process_name(command: list[str]) -> str:
    """The function or server that a command line runs; ``second-SERVER`` at the second site."""
    if "kafka.Kafka" in command:
        return "kafka"
    if "serve" in command:
        return command[-1]
    name = command[0] if command else ""
    return f"second-{name}" if any("/second-site/" in word for word in command) else name


def stored_counts(audit: CommandResult) -> dict[str, tuple[int, int, int]]:
    """Received, stored and dead-lettered alerts by table, from the output of `audit`."""
    sums: dict[str, tuple[int, int, int]] = {}
    for line in audit.output.splitlines():
        if found := re.match(r"(cutouts|detections)\s+\S+\s+\d+" + r"\s+([\d,]+)" * 4, line):
            received, stored, dead = (int(text.replace(",", "")) for text in found.groups()[1:4])
            before = sums.get(found[1], (0, 0, 0))
            sums[found[1]] = (before[0] + received, before[1] + stored, before[2] + dead)
    return sums
