"""One `stampede up` in a directory, and where commands find it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stampede.cli.options import DATA
from stampede.cli.running import OTHERS
from stampede.errors import SetupError

LOCK = "up.lock"


@contextmanager
def only_one(data: Path) -> Iterator[None]:
    """Hold the directory for this process; the kernel gives it up when the process ends.

    Raises `SetupError` with the pid of the process that holds it.
    """
    # Not "w": that would delete the other's pid.
    with (data / LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise SetupError(
                f"already running, pid {file.read().strip() or 'unknown'}: a `stampede up` uses "
                f"{data}; see it with `stampede status`, or choose another directory with --data"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextmanager
def announced(data: Path) -> Iterator[None]:
    """Let commands without --data find this process, if its data are not in the usual place."""
    if data == DATA:
        yield
        return
    note = OTHERS / str(os.getpid())
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(str(data))
    try:
        yield
    finally:
        note.unlink(missing_ok=True)
