"""The machine of a measurement, and the versions of the software that matters."""

import os
import platform
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from stampede import __version__

PACKAGES = ("datafusion", "pyarrow", "fastavro", "confluent-kafka", "minio", "uvicorn")


def machine() -> dict[str, str | int | float]:
    """Processor, cores, memory, kernel and the load average before the run."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Versions of Python, of the packages that do the work, and of Ceph."""
    found = {"python": sys.version.split()[0], "stampede": __version__}
    found |= {name: metadata.version(name) for name in PACKAGES}
    if shutil.which("ceph-osd"):
        words = subprocess.run(["ceph-osd", "--version"], capture_output=True, text=True).stdout
        found["ceph"] = " ".join(words.split()[2:3])
    return found


def processor() -> str:
    """The processor's name in Linux."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def disk_wait() -> float | None:
    """Seconds since the start of the machine in which all that could run waited for a disk.

    From Linux's pressure stall information; None if the kernel does not count it.
    https://docs.kernel.org/accounting/psi.html
    """
    with suppress(OSError):
        for line in Path("/proc/pressure/io").read_text().splitlines():
            if line.startswith("full "):
                return int(line.rpartition("total=")[2]) / 1e6
    return None
