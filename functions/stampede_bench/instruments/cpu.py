"""CPU time by process, from the kernel: on a shared machine it is steadier than wall time."""

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")  # per second


class Cpu:
    """CPU seconds of processes and their children since this object was made.

    Parameters
    ----------
    pids
        Process ids by name. Python's spawned workers count as ``<name> workers``, other children as
        part of their parent.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._wall = time.monotonic()
        self._before = self._now()
        self._busy = busy()

    def seconds(self) -> dict[str, float]:
        """User and system time by name, since this object was made."""
        return {name: spent - self._before.get(name, 0.0) for name, spent in self._now().items()}

    @property
    def wall(self) -> float:
        """Wall time in seconds, since this object was made."""
        return time.monotonic() - self._wall

    def others(self, own: float) -> float:
        """Cores that other processes kept busy, given that `own` CPU seconds were ours."""
        return max(0.0, busy() - self._busy - own) / self.wall

    def _now(self) -> dict[str, float]:
        parents = dict(processes())
        spent: dict[str, float] = {}
        for name, pid in self._pids.items():
            spent[name] = cpu_seconds(pid)
            for child, parent in parents.items():
                if parent == pid:
                    label = f"{name} workers" if _is_worker(child) else name
                    spent[label] = spent.get(label, 0.0) + cpu_seconds(child)
        return spent


def peak_memory(pids: Mapping[str, int]) -> dict[str, int]:
    """Most bytes that a process held since it started, by name as in `Cpu`; of several the most.

    Pages that processes share count for each (proc(5), ``VmHWM``).
    """
    most: dict[str, int] = {}
    parents = dict(processes())
    for name, pid in pids.items():
        children = [child for child, parent in parents.items() if parent == pid]
        for each in (pid, *children):
            label = f"{name} workers" if each != pid and _is_worker(each) else name
            most[label] = max(most.get(label, 0), _peak(each))
    return most


def processes() -> Iterator[tuple[int, int]]:
    """Every process and its parent, by their ids (proc(5): field 4 of ``stat``)."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):  # the process has just ended
                # The program's name, in parentheses, may contain spaces and parentheses.
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                yield int(entry.name), int(fields[1])


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, its threads included; 0 if there is no such process.

    The process's CPU clock counts nanoseconds, where ``stat`` in /proc counts ticks of 10 ms
    (clock_getcpuclockid(3); its id is made as the kernel's ``CPUCLOCK_SCHED`` says).
    """
    with suppress(OSError):
        return time.clock_gettime(~pid << 3 | 2)
    return 0.0


def busy() -> float:
    """CPU seconds that the machine has spent since it started (proc(5), ``/proc/stat``)."""
    user, nice, system, _, _, irq, softirq, steal, *_ = map(
        int, Path("/proc/stat").read_text().split(maxsplit=11)[1:11]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS


def _peak(pid: int) -> int:
    with suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return 1024 * int(found[1]) if found else 0
    return 0


def _is_worker(pid: int) -> bool:
    """Whether a process is one of Python's spawned workers."""
    with suppress(OSError):
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
