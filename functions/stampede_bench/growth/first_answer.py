"""From the start of a process of `read` to its first response, beside its libraries' imports alone.

Nearly all of a start is CPU time of imports, and hosts differ by a factor of two: so the bound is a
ratio, and half a second is the target.
"""

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede_bench.figures import Bound, Context, Figure, Rival, over_rounds
from stampede_bench.instruments.cpu import cpu_seconds
from stampede_local.ports import free_port
from stampede_local.process import Process

LIBRARIES = (
    *("numpy", "obstore", "prometheus_client", "pyarrow", "pyarrow.parquet", "pydantic_settings"),
    *("starlette.applications", "structlog", "urllib3", "uvicorn", "uvloop"),
)
"""What `read` imports to answer any path, besides its own modules."""
MORE_LIBRARIES = {"a cutout": (), "a light curve": ("pyarrow.compute",)}
"""What it imports for one response in addition: Arrow itself needs it to merge and convert rows."""
REQUIREMENT, TARGET = Bound("<=", 1.5, ratio=True), Bound("<=", 500.0)
PAUSE = 0.002  # seconds between two tries to connect
SECONDS = 150.0  # the first start compiles all modules: 40 s on a busy machine


class Start(NamedTuple):
    """Milliseconds until the first response, and those of CPU that the process took until then."""

    wall: float
    cpu: float


SUBJECT = "from the start of a process to its first answer"


def first_answers(
    context: Context, settings: Settings, paths: Mapping[str, str], subject: str = SUBJECT
) -> Iterator[Figure]:
    """Start `read` again and again, and ask each process for one path.

    Parameters
    ----------
    paths
        The path by what it answers: the names in `MORE_LIBRARIES`.
    """
    starts = context.scaled(7, 3, least=1)
    folder = context.scratch / "starts"
    folder.mkdir(exist_ok=True)
    first_answer(folder, settings, next(iter(paths.values())))  # writes the bytecode
    bare_start(folder, "a light curve")
    for name, path in paths.items():
        context.progress(f"{starts} starts of `read`, until {name}")
        turns = []
        for _ in range(starts):
            found = first_answer(folder, settings, path)
            rival = Rival("a process that imports its libraries", bare_start(folder, name))
            wall = Figure(subject, name, found.wall, "ms", rival, REQUIREMENT, None, TARGET)
            turns.append([wall, Figure(subject, f"{name}: CPU", found.cpu, "ms")])
        yield from over_rounds(turns)


def bare_start(folder: Path, name: str) -> float:
    """Milliseconds of a process that imports the libraries of a response, set up as `read` is.

    It ends at once, without tidying up, which would take some 50 ms more.
    """
    env = os.environ | _bytecode(folder)
    env |= {"OPENBLAS_NUM_THREADS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"}
    begin = time.perf_counter()
    modules = ", ".join(LIBRARIES + MORE_LIBRARIES[name])
    program = f"import os, {modules}\nos._exit(0)"
    subprocess.run([sys.executable, "-c", program], env=env, check=True)
    return 1e3 * (time.perf_counter() - begin)


def first_answer(folder: Path, settings: Settings, path: str) -> Start:
    """Start a process as a pod does, and ask it for a path until it answers.

    As in the image, Python's bytecode is there: the first call with a `folder` writes it.

    Raises
    ------
    StampedeError
        The response is not 200, or none came.
    """
    port = free_port()
    env = {
        "STAMPEDE_STORE": settings.store,
        "STAMPEDE_ACCESS_KEY": settings.access_key,
        "STAMPEDE_SECRET_KEY": settings.secret_key.get_secret_value(),
        "STAMPEDE_PORT": str(port),
    }
    env |= _bytecode(folder)
    command = [sys.executable, "-m", "stampede", "serve", "read"]
    process = Process("read", command, folder / "read.log", env)
    begin = time.perf_counter()
    process.start()
    try:
        status = ask(process, port, path, begin + SECONDS)
        found = Start(1e3 * (time.perf_counter() - begin), 1e3 * cpu_seconds(process.pid or 0))
    finally:
        process.stop()
    if status != 200:
        raise StampedeError(f"{path} of a new process answered {status}: {process.tail(3)}")
    return found


def _bytecode(folder: Path) -> dict[str, str]:
    """Variables of a process that keeps its bytecode in a folder."""
    return {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}


def ask(process: Process, port: int, path: str, until: float) -> int:
    """The status of a process's response, once it listens; 0 if none came."""
    while process.running and time.perf_counter() < until:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            return response.status
        except ConnectionRefusedError:
            time.sleep(PAUSE)
        finally:
            connection.close()
    return 0
