"""From the start of a process of `read` to its first answer."""

import http.client
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from stampede.errors import StampedeError
from stampede.settings import Settings
from stampede_bench.cpu import cpu_seconds
from stampede_bench.figures import Context, Figure, Must, percentile
from stampede_local.ports import free_port
from stampede_local.process import Process

MUST = Must("<=", 500.0)
PAUSE = 0.002  # seconds between two tries to connect
SECONDS = 150.0  # the first start compiles all modules: 40 s on a busy machine


class Start(NamedTuple):
    """Milliseconds until the first answer, and those of CPU that the process took until then."""

    wall: float
    cpu: float


SUBJECT = "from the start of a process to its first answer"


def first_answers(
    context: Context, settings: Settings, paths: Mapping[str, str], subject: str = SUBJECT
) -> Iterator[Figure]:
    """Start `read` again and again, and ask each process for one path: each path by its name."""
    starts = context.scaled(5, 3, least=1)
    folder = context.scratch / "starts"
    folder.mkdir(exist_ok=True)
    first_answer(folder, settings, next(iter(paths.values())))  # writes the bytecode
    for name, path in paths.items():
        context.progress(f"{starts} starts of `read`, until {name}")
        found = [first_answer(folder, settings, path) for _ in range(starts)]
        wall, cpu = ([each[part] for each in found] for part in (0, 1))
        spread = min(wall), max(wall)
        yield Figure(subject, name, percentile(wall, 50), "ms", None, MUST, spread)
        spread = min(cpu), max(cpu)
        yield Figure(subject, f"{name}: CPU", percentile(cpu, 50), "ms", None, None, spread)


def first_answer(folder: Path, settings: Settings, path: str) -> Start:
    """Start a process as a pod does, and ask it for a path until it answers.

    As in the image, Python's bytecode is there: the first call with a `folder` writes it.

    Raises
    ------
    StampedeError
        The answer is not 200, or none came.
    """
    port = free_port()
    env = {
        "STAMPEDE_STORE": settings.store,
        "STAMPEDE_ACCESS_KEY": settings.access_key,
        "STAMPEDE_SECRET_KEY": settings.secret_key.get_secret_value(),
        "STAMPEDE_PORT": str(port),
    }
    env |= {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-m", "stampede", "serve", "read"]
    process = Process("read", command, folder / "read.log", env)
    begin = time.perf_counter()
    process.start()
    try:
        status = _ask(process, port, path, begin + SECONDS)
        found = Start(1e3 * (time.perf_counter() - begin), 1e3 * cpu_seconds(process.pid or 0))
    finally:
        process.stop()
    if status != 200:
        raise StampedeError(f"{path} of a new process answered {status}: {process.tail(3)}")
    return found


def _ask(process: Process, port: int, path: str, until: float) -> int:
    """The status of the answer; 0 if none came."""
    while process.running and time.perf_counter() < until:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except ConnectionRefusedError:
            time.sleep(PAUSE)
        finally:
            connection.close()
    return 0
