"""What the node needs of the machine it is on, and how the machine is left as it was."""

import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from e2e.cluster.places import HOST_IP, LINK, LOGS, NODE_IP, PODS, SERVICES
from e2e.cluster.steps import Failed, run

# What the kubelet sets on the machine, which has it back afterwards.
_SETTINGS = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
)


def link(pid: int) -> None:
    """A cable between this machine and the node: no forwarding, no address translation."""
    unlink()
    for each in (
        ("link", "add", LINK, "type", "veth", "peer", "name", "eth0", "netns", pid),
        ("address", "add", f"{HOST_IP}/30", "dev", LINK),
        ("link", "set", LINK, "up"),
        ("route", "add", SERVICES, "via", NODE_IP),
        ("route", "add", PODS, "via", NODE_IP),
    ):
        run("ip", *each, log=LOGS / "link.log")


def unlink() -> None:
    """Take the cable away, if there is one."""
    subprocess.run(["ip", "link", "delete", LINK], capture_output=True)


def birth(pid: int) -> int | None:
    """When a process began, in the kernel's ticks: a number may be another's one day."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    with suppress(FileNotFoundError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def has_pods() -> bool:
    """Whether this machine is a Kubernetes node already."""
    return any(_cgroups())


def remove_cgroups() -> None:
    """Remove those of the pods; the kernel keeps killed processes in them for a moment.

    Raises
    ------
    Failed
        Processes in them go on.
    """
    deadline = time.monotonic() + 60
    while groups := _cgroups():
        for group in groups:
            for directory, _, _ in os.walk(group, topdown=False):
                with suppress(OSError):
                    os.rmdir(directory)
        if time.monotonic() > deadline:
            raise Failed(f"cgroups are left: {', '.join(map(str, groups))}")
        time.sleep(0.02)


def keep_settings(file: Path) -> None:
    """Write down the machine's settings, unless that is done."""
    if not file.exists():
        files = {name: Path("/proc/sys", name) for name in _SETTINGS}
        found = {name: each.read_text() for name, each in files.items() if each.exists()}
        file.write_text(json.dumps(found))


def restore_settings(file: Path) -> None:
    """Set them as they were, once."""
    if file.exists():
        for name, value in json.loads(file.read_text()).items():
            with suppress(OSError):
                Path("/proc/sys", name).write_text(value)
        file.unlink()


def _cgroups() -> list[Path]:
    """The cgroups of all pods, one in each hierarchy (one in all with version 2)."""
    root = Path("/sys/fs/cgroup")
    return [path for path in (root / "kubepods", *root.glob("*/kubepods")) if path.is_dir()]
