"""The memory-backed directory between door and workers: what is in it ends with its process."""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "stampede-"


class Spool:
    """A directory under `parent` that is this process's own.

    It is locked, which the kernel undoes when the process ends, however that came about. So
    whoever makes one first removes those that nobody holds: a killed process would else leave
    a batch in memory for ever.
    """

    def __init__(self, parent: Path) -> None:
        for old in parent.glob(f"{PREFIX}*"):
            if (lock := _lock(old)) is not None:
                shutil.rmtree(old, ignore_errors=True)
                os.close(lock)
        self._lock = None
        while self._lock is None:  # until nobody removed it between making and locking
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            self._lock = _lock(self.path)

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _lock(directory: Path) -> int | None:
    """A descriptor that holds the directory, or None where another process does."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if directory.exists():
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
