"""What the figures were measured on: the machine, and the versions of what matters."""

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
    """Processor, cores, memory, and how busy others keep it (load average before the run)."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Python, the packages that do the work, Ceph."""
    found = {"python": sys.version.split()[0], "stampede": __version__}
    found |= {name: metadata.version(name) for name in PACKAGES}
    if shutil.which("ceph-osd"):
        words = subprocess.run(["ceph-osd", "--version"], capture_output=True, text=True).stdout
        found["ceph"] = " ".join(words.split()[2:3])
    return found


def processor() -> str:
    """The processor's name as Linux has it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
