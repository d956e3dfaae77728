"""A small disk for the spool and the logs of all functions, which is full from time to time."""

import errno
import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.faults.later import Later

MIB = 1 << 20
FULL_SECONDS = (3.0, 15.0)


class SmallDisk:
    """Fills a mounted file system, and frees it after seconds."""

    def __init__(self, chance: random.Random, directory: Path, later: Later) -> None:
        self._chance, self._later = chance, later
        self._file = directory / "filling"

    def fill(self) -> str | None:
        """No process can write another byte to its spool or its log."""
        if self._file.exists():
            return None
        _fill(self._file)
        seconds = self._chance.uniform(*FULL_SECONDS)
        self._later.after(seconds, lambda: self._file.unlink(missing_ok=True))
        return f"disk-full for {seconds:.0f} s"


@contextmanager
def small_disk(directory: Path, mebibytes: int = 96) -> Iterator[bool]:
    """Mount a disk in memory at a directory; False if this user may not mount."""
    directory.mkdir(parents=True, exist_ok=True)
    options = f"size={mebibytes}m,mode=0700"
    command = ["mount", "-t", "tmpfs", "-o", options, "stampede-faults", str(directory)]
    mounted = os.geteuid() == 0 and not subprocess.run(command, capture_output=True).returncode
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", directory], check=True)


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as opened:
        for size in (MIB, 4096, 1):
            while True:
                try:
                    opened.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    break
