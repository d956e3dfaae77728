"""Finds the files that hold alerts, and reads the alerts in them."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from stampede.errors import SetupError
from stampede.ingest import archives
from stampede.ingest.identity import Identity, check_unchanged
from stampede.ingest.records import FileAlert
from stampede.ingest.stream import Stream

MIB = 1 << 20
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".zip")
AVRO = (".avro", ".avro.gz", ".avro.bz2", ".avro.xz")
ENDINGS = (*AVRO, *ARCHIVES)


def find(paths: Iterable[Path]) -> list[Path]:
    """The files of alerts at `paths` and below, in order; links are followed.

    Raises `SetupError` for what cannot be read twice, and if there are no files at all.
    """
    paths = list(paths)
    alert_files: list[Path] = []
    for path in paths:
        if path.is_dir():
            alert_files += [file for file in _below(path) if file.name.endswith(ENDINGS)]
        else:
            alert_files.append(path)
    for file in alert_files:
        if not file.exists():
            raise SetupError(f"{file}: there is no such file or folder")
        if not file.is_file():
            raise SetupError(
                f"{file} is neither a file nor a folder: `ingest` reads a file twice, so write a "
                "stream to a file first"
            )
    if not alert_files:
        raise SetupError(
            f"no alerts in {', '.join(map(str, paths))}: looked for files that end in "
            f"{', '.join(ENDINGS)}"
        )
    return alert_files


def left_out(paths: Iterable[Path]) -> list[Path]:
    """The files in the folders of `paths` that `find` leaves out, because of their names."""
    folders = (path for path in paths if path.is_dir())
    return [file for each in folders for file in _below(each) if not file.name.endswith(ENDINGS)]


def _below(folder: Path) -> list[Path]:
    """All that is in a folder and no folder itself. Raises `SetupError` if one cannot be read."""

    def fail(error: OSError) -> None:
        raise SetupError(f"{error.filename} cannot be read: {error.strerror}") from error

    found = []
    seen = set()
    for path, folders, names in os.walk(folder, onerror=fail, followlinks=True):
        seen.add(os.path.realpath(path))
        # A link may lead back: each folder once.
        folders[:] = [
            name for name in folders if os.path.realpath(os.path.join(path, name)) not in seen
        ]
        found += [Path(path, name) for name in names]
    return sorted(found)


def read(
    files: Iterable[Path], limit: int = 16 * MIB, identity: Identity | None = None
) -> Iterator[FileAlert]:
    """Every alert in these files, in order, without holding all of them in memory.

    What cannot be read is an alert too, with a `fault` if no function could say what is wrong.

    Parameters
    ----------
    limit
        Most bytes of an alert.
    identity
        What `identify` returned for these files.

    Raises
    ------
    SetupError
        A file cannot be opened, or was written since its identity was read.
    """
    for path in files:
        try:
            with path.open("rb") as file:
                yield from archives.alerts(str(path), Stream(file), limit)
                if identity:
                    check_unchanged(path, file, identity)
        except OSError as error:
            raise SetupError(f"{path} cannot be read: {error.strerror}") from error
