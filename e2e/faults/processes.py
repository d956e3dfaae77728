"""Faults of processes: they are killed, stand still, or have a clock that is years wrong."""

import random
import struct
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil

from e2e.faults.later import Later
from e2e.stampede_up import StampedeUp

EVENTS = ("notifications", "broker", "thumbnails", "replicate", "reconcile", "scrub")
ALERTS = ("alerts", "deadletters", "compact", "read")
SERVERS = ("radosgw", "ceph-osd", "second-radosgw", "kafka")
STOP_SECONDS = (4.0, 30.0)  # some stops are longer than every grace
CLOCK_SECONDS = (5.0, 20.0)
YEARS = (-10, -1, 1, 10)
YEAR = 365 * 86400  # seconds
CODE = Path(__file__).with_name("clock.c")


class Processes:
    """Kills and stops the processes of `stampede up`."""

    def __init__(self, chance: random.Random, up: StampedeUp, later: Later) -> None:
        self._chance, self._up, self._later = chance, up, later
        self._stopped: dict[int, psutil.Process] = {}

    def kill(self) -> str | None:
        """SIGKILL to a process of the system."""
        # Ceph's and Kafka's processes take longest to come back.
        name = self._chance.choice((*EVENTS, *ALERTS, *EVENTS, *ALERTS, *SERVERS))
        process = self.one(name)
        if process is None:
            return None
        with suppress(psutil.NoSuchProcess):
            process.kill()
        return f"kill {name}"

    def stop(self) -> str | None:
        """SIGSTOP, and SIGCONT after seconds."""
        name = self._chance.choice((*EVENTS, *ALERTS, "radosgw", "kafka"))
        process = self.one(name)
        if process is None or process.pid in self._stopped:
            return None
        self.suspend(process)
        seconds = self._chance.uniform(*STOP_SECONDS)
        self._later.after(seconds, lambda: self.resume(process))
        return f"stop {name} for {seconds:.0f} s"

    def one(self, name: str) -> psutil.Process | None:
        """One of the processes of this name."""
        found = self.all(name)
        return self._chance.choice(found) if found else None

    def all(self, name: str) -> list[psutil.Process]:
        """The processes of this name that run."""
        return self._up.processes(name)

    def suspend(self, process: psutil.Process) -> None:
        """SIGSTOP."""
        self._stopped[process.pid] = process
        with suppress(psutil.NoSuchProcess):
            process.suspend()

    def resume(self, process: psutil.Process) -> None:
        """SIGCONT."""
        self._stopped.pop(process.pid, None)
        with suppress(psutil.NoSuchProcess):
            process.resume()


class Clocks:
    """The clocks of the functions' processes: each reads one file, see ``clock.c``.

    Parameters
    ----------
    directory
        Of the library and the files.
    """

    def __init__(self, chance: random.Random, directory: Path, later: Later) -> None:
        self._chance, self._directory, self._later = chance, directory, later

    def jump(self) -> str | None:
        """The clock of one function jumps by years, and back after seconds."""
        files = sorted(self._directory.glob("*.seconds"))
        if not files:
            return None
        file, years = self._chance.choice(files), self._chance.choice(YEARS)
        seconds = self._chance.uniform(*CLOCK_SECONDS)
        set_clock(file, years * YEAR)
        self._later.after(seconds, lambda: set_clock(file, 0))
        return f"clock {years:+} years in {file.stem} for {seconds:.0f} s"


def build_clock(directory: Path) -> Path:
    """Compile the library. Raises `OSError` or `CalledProcessError` without a C compiler."""
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / "clock.so"
    command: list[str | Path] = ["cc", "-shared", "-fPIC", "-O2", "-o", library, CODE, "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


def clock_environment(directory: Path, name: str) -> dict[str, str]:
    """The variables with which a process has a clock of its own; it is right at first."""
    file = directory / f"{name}.seconds"
    set_clock(file, 0)
    return {"LD_PRELOAD": str(directory / "clock.so"), "E2E_CLOCK": str(file)}


def set_clock(file: Path, seconds: int) -> None:
    """Have the process of this file add so many seconds to the time of day."""
    # Written in place: the process has the file mapped.
    with file.open("r+b" if file.exists() else "wb") as opened:
        opened.write(struct.pack("q", seconds))
