"""Keys in a directory, a file for each, as Kubernetes mounts a Secret."""

from collections.abc import Sequence
from pathlib import Path

from stampede.errors import SetupError


def read_keys(directory: str, names: Sequence[str]) -> tuple[str, ...] | None:
    """The contents of these files, without white space around them; None if one has nothing.

    Raises `SetupError` if one may not be read.
    """
    if not directory:
        return None
    try:
        # Kubernetes puts a new Secret into a new directory and then changes one link. So all files
        # are read from where the first one is now: otherwise a pair could be half old, half new.
        folder = (Path(directory) / names[0]).resolve().parent
        found = [(folder / name).read_text(errors="replace").strip() for name in names]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SetupError(f"the keys in {directory} cannot be read: {error.strerror}") from None
    return tuple(found) if all(found) else None
