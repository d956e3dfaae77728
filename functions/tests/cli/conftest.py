"""The command line as a process."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


class Result:
    """How a command ended: its exit status and what it printed."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        assert "Traceback" not in self.err, self.err

    def one_line(self) -> str:
        """The error: one line on stderr, and nothing else."""
        assert (self.status, self.out) == (2, "")
        (line,) = self.err.splitlines()
        assert line.startswith("stampede: ")
        return line.removeprefix("stampede: ")


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Result]:
    """Run a command: ``run("audit", "--site", "replica", STAMPEDE_STORE=…)``."""

    def go(*arguments: str, **env: str) -> Result:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("STAMPEDE_", "K_"))}
        return Result(
            subprocess.run(
                [sys.executable, "-m", "stampede", *arguments],
                capture_output=True,
                text=True,
                timeout=150,
                cwd=tmp_path,
                env=clean
                | {"XDG_DATA_HOME": str(tmp_path / "data"), "COLUMNS": "100", "TERM": "dumb"}
                | env,
            )
        )

    return go
