"""The name that stands for a topic in the ledger: a digest of what the files contain.

The same content has the same name under any path, so its alerts have the same offsets. Other
content has another name, so an alert never counts as stored because of a file that looked alike.
"""

from collections.abc import Callable, Iterable
from hashlib import blake2b
from os import fstat
from pathlib import Path
from typing import IO, NamedTuple

from stampede.errors import SetupError

PREFIX = "files-"
# Part of every digest. Change it whenever other alerts, or another order, are read from a file.
WAY_OF_READING = "3"
DIGEST_BYTES = 12
BLOCK = 1 << 20


class FileState(NamedTuple):
    """What changes when a file is written: its inode, size and time."""

    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, file: IO[bytes]) -> "FileState":
        """The state of an open file."""
        status = fstat(file.fileno())
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


class Identity(NamedTuple):
    """The name of some files' content, and the state of each file when its content was read."""

    topic: str
    states: dict[Path, FileState]


def identify(
    files: Iterable[Path], limit: int = 0, progress: Callable[[int], bool] = lambda _: True
) -> Identity:
    """Read all files once, a block at a time.

    Parameters
    ----------
    limit
        Most bytes of an alert: it decides into what a damaged file is split.
    progress
        Called with the bytes read so far, after each block; reading ends if it returns False.

    Raises
    ------
    SetupError
        A file cannot be read.
    """
    state = blake2b(f"{WAY_OF_READING} {limit} ".encode(), digest_size=DIGEST_BYTES)
    states = {}
    done = 0
    for path in files:
        try:
            with path.open("rb") as file:
                states[path] = FileState.of(file)
                content = blake2b()
                while block := file.read(BLOCK):
                    content.update(block)
                    done += len(block)
                    if not progress(done):
                        return Identity("", {})
        except OSError as error:
            raise SetupError(f"{path} cannot be read: {error.strerror}") from error
        state.update(content.digest())
    return Identity(PREFIX + state.hexdigest(), states)


def check_unchanged(path: Path, file: IO[bytes], identity: Identity) -> None:
    """Raise `SetupError` if an open file was written since `identify` read it."""
    if FileState.of(file) != identity.states[path]:
        raise SetupError(
            f"{path} was written while it was being read: its alerts would get wrong offsets. "
            "Run the same again when nothing writes to it any more"
        )
