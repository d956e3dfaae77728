"""The memory-backed directory through which batches reach the workers, and its files."""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING
from weakref import finalize

if TYPE_CHECKING:  # what receives events needs no decoder (docs/adr/0054-native-code.md)
    from stampede.runtime.decompression import Bytes

PREFIX = "stampede-"
MOST_PIECES = 1024  # most pieces that one call can write (IOV_MAX)
CACHED_BYTES = 64 << 20  # memory that a file keeps between batches: the largest usual batch


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


class SpoolFile:
    """A file in memory, which every batch overwrites.

    A new file would get zeroed pages from the kernel, and zeroing them is as slow as a second copy
    (docs/adr/0011-one-file-to-decode.md). The file is deleted with this object.

    Parameters
    ----------
    directory
        A directory in memory.
    suffix
        The end of the file's name.
    """

    def __init__(self, directory: Path, suffix: str = ".batch") -> None:
        self.directory = directory
        self._suffix = suffix
        self._file: IO[bytes] | None = None
        self._size = 0

    def write(self, pieces: "Sequence[Bytes]") -> str:
        """Replace the content; return the path. Raises `OSError`."""
        file = self._open()
        self._size = _write(file.fileno(), pieces)
        return file.name

    def fileno(self) -> int:
        """The descriptor of what was written."""
        assert self._file
        return self._file.fileno()

    def release(self) -> None:
        """Release the memory of an unusually large batch."""
        if self._file is not None:
            os.truncate(self._file.fileno(), min(self._size, CACHED_BYTES))

    def _open(self) -> IO[bytes]:
        """The file, or a new one if the file was removed. Raises `OSError`."""
        if self._file is None or not os.fstat(self._file.fileno()).st_nlink:
            if self._file is not None:
                self._file.close()
            self._file = tempfile.NamedTemporaryFile(  # noqa: SIM115
                suffix=self._suffix, dir=self.directory, delete=False
            )
            finalize(self, _remove, self._file)
        return self._file


def _remove(file: IO[bytes]) -> None:
    """Close a temporary file and delete it, if its directory was not removed before."""
    file.close()
    Path(file.name).unlink(missing_ok=True)


def _write(file: int, pieces: "Sequence[Bytes]") -> int:
    """Replace a file's content; return its size. Empties the file before it raises `OSError`."""
    size = 0
    try:
        for first in range(0, len(pieces), MOST_PIECES):
            size += os.pwritev(file, pieces[first : first + MOST_PIECES], size)
        if size < sum(map(len, pieces)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.truncate(file, 0)
        raise
    os.truncate(file, size)
    return size


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
