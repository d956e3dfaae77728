"""CPU time by process, as the kernel has it: what a shared machine's wall clock cannot tell."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")  # a second


class Stat(NamedTuple):
    """A process: its parent, and the seconds of user and system time it has spent."""

    parent: int
    seconds: float


class Cpu:
    """CPU seconds of processes and their children since this was made.

    Parameters
    ----------
    pids
        Process ids by name. Python's spawned workers count as ``<name> workers``; any other
        child counts as its parent.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._wall = time.monotonic()
        self._before = self._now()
        self._busy = busy()

    def seconds(self) -> dict[str, float]:
        """User and system time by name since then."""
        return {name: spent - self._before.get(name, 0.0) for name, spent in self._now().items()}

    @property
    def wall(self) -> float:
        """Seconds since then."""
        return time.monotonic() - self._wall

    def others(self, own: float) -> float:
        """Cores that everybody else kept busy since then, where `own` seconds were ours."""
        return max(0.0, busy() - self._busy - own) / self.wall

    def _now(self) -> dict[str, float]:
        everyone = dict(processes())
        spent: dict[str, float] = {}
        for name, pid in self._pids.items():
            spent[name] = everyone[pid].seconds if pid in everyone else 0.0
            for child, stat in everyone.items():
                if stat.parent == pid:
                    whose = f"{name} workers" if _works(child) else name
                    spent[whose] = spent.get(whose, 0.0) + stat.seconds
        return spent


def processes() -> Iterator[tuple[int, Stat]]:
    """Every process by its id (proc(5): fields 4, 14 and 15 of ``stat``)."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):  # it has just ended
                # The program's name, in parentheses, may hold anything.
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                seconds = (int(fields[11]) + int(fields[12])) / TICKS
                yield int(entry.name), Stat(int(fields[1]), seconds)


def busy() -> float:
    """CPU seconds that the machine has spent on anything (proc(5), ``/proc/stat``)."""
    user, nice, system, _, _, irq, softirq, steal, *_ = map(
        int, Path("/proc/stat").read_text().split(maxsplit=11)[1:11]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS


def _works(pid: int) -> bool:
    """Whether it is one of Python's spawned workers."""
    with suppress(OSError):
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
