"""The memory-backed directory through which batches reach the workers."""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "stampede-"


class Spool:
    """A directory under `parent` that only this process uses.

    The process locks the directory. The kernel removes the lock when the process ends, however it
    ends, so a new spool first removes every directory that no process has locked. Otherwise the
    batches of a killed process would stay in memory for ever.
    """

    def __init__(self, parent: Path) -> None:
        for old in parent.glob(f"{PREFIX}*"):
            if (lock := _lock(old)) is not None:
                shutil.rmtree(old, ignore_errors=True)
                os.close(lock)
        self._lock = None
        while self._lock is None:  # another process may remove the directory before the lock
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            self._lock = _lock(self.path)

    def close(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _lock(directory: Path) -> int | None:
    """A descriptor that locks the directory; None if another process holds it."""
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
