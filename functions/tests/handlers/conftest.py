"""Functions as they run: real processes of `stampede serve`, on a store that is a directory."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.events.http.probes import is_ready
from stampede_local.ports import free_port
from stampede_local.process import Process, wait_until
from tests.support.served import Served


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Start functions: ``serve("cutouts", DECODE_SECONDS=1)``; `probe` tells when one runs."""
    started: list[Process] = []

    def start(name: str, probe: str = "readiness", **env: object) -> Served:
        port = free_port()
        settings = {"STORE": f"file://{tmp_path}/store", "PORT": port, **env}
        process = Process(
            name,
            [sys.executable, "-m", "stampede", "serve", name],
            tmp_path / f"{name}.log",
            {f"STAMPEDE_{key}": str(value) for key, value in settings.items()},
        )
        process.start()
        started.append(process)
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: is_ready(url, probe), process)
        return Served(process, url, Settings(store=str(settings["STORE"])))

    yield start
    for process in started:
        process.stop()
