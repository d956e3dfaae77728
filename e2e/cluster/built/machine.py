"""Changes to the machine that Docker of our own runs on, and how they are undone."""

import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from e2e.cluster.places import LOGS
from e2e.cluster.steps import Failed, run

# Kernel settings that the kubelet changes. They are restored afterwards.
_SETTINGS = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
)


class Link(NamedTuple):
    """A veth pair between this machine and a network namespace."""

    name: str  # of this machine's end; the other's is eth0
    host: str  # this machine's address
    node: str  # the other end's


def link(pid: int, pair: Link) -> None:
    """Link this machine and a process's network: no forwarding, no address translation."""
    unlink(pair)
    for each in (
        ("link", "add", pair.name, "type", "veth", "peer", "name", "eth0", "netns", pid),
        ("address", "add", f"{pair.host}/30", "dev", pair.name),
        ("link", "set", pair.name, "up"),
    ):
        run("ip", *each, log=LOGS / "link.log")


def unlink(pair: Link) -> None:
    """Remove the link, if it exists."""
    subprocess.run(["ip", "link", "delete", pair.name], capture_output=True)


def read_pid(file: Path) -> int | None:
    """The process id in a file that also has its start time, or None if that process has ended."""
    try:
        pid, started = map(int, file.read_text().split())
    except (FileNotFoundError, ValueError):
        return None
    return pid if start_time(pid) == started else None


def start_time(pid: int) -> int | None:
    """When a process started, in kernel ticks, or None if it has ended.

    Process ids are reused: the start time tells two processes with the same id apart.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def children(pid: int) -> list[int]:
    """Ids of the child processes of a process."""
    with suppress(FileNotFoundError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def remove_cgroups(name: str) -> None:
    """Remove the cgroups of a name.

    The kernel keeps killed processes in them for a moment.

    Raises
    ------
    Failed
        Processes in them still run after 60 s.
    """
    deadline = time.monotonic() + 60
    while groups := _cgroups(name):
        for group in groups:
            for directory, _, _ in os.walk(group, topdown=False):
                with suppress(OSError):
                    os.rmdir(directory)
        if time.monotonic() > deadline:
            raise Failed(f"cgroups are left: {', '.join(map(str, groups))}")
        time.sleep(0.02)


def save_settings(file: Path) -> None:
    """Save the machine's settings, unless they are saved already."""
    if not file.exists():
        files = {name: Path("/proc/sys", name) for name in _SETTINGS}
        found = {name: each.read_text() for name, each in files.items() if each.exists()}
        file.write_text(json.dumps(found))


def restore_settings(file: Path) -> None:
    """Restore the saved settings, and delete the file."""
    if file.exists():
        for name, value in json.loads(file.read_text()).items():
            with suppress(OSError):
                Path("/proc/sys", name).write_text(value)
        file.unlink()


def _cgroups(name: str) -> list[Path]:
    """The cgroups of this name: one in each hierarchy (a single one with cgroups version 2)."""
    root = Path("/sys/fs/cgroup")
    return [path for path in (root / name, *root.glob(f"*/{name}")) if path.is_dir()]
