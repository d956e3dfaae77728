"""Finds the files that hold alerts, and reads the alerts in them."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from stampede.errors import SetupError
from stampede.ingest import archives
from stampede.ingest.identity import Identity, check_unchanged
from stampede.ingest.records import FileAlert
from stampede.ingest.stream import Readable, Stream

MIB = 1 << 20
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".zip")
AVRO = (".avro", ".avro.gz", ".avro.bz2", ".avro.xz")
ENDINGS = (*AVRO, *ARCHIVES)


def find(paths: Iterable[Path]) -> list[Path]:
    """The files of alerts at `paths` and below, in order.

    A link that is named is followed, one in a folder is not: see `left_out`.

    Raises `SetupError` for a path that cannot be read twice, and if there are no files at all.
    """
    paths = list(paths)
    alert_files: list[Path] = []
    for path in paths:
        if path.is_dir():
            alert_files += _below(path).alert_files
            continue
        if not path.exists():
            raise SetupError(f"{path}: there is no such file or folder")
        if not path.is_file():
            raise SetupError(
                f"{path} is neither a file nor a folder: `ingest` reads a file twice, so write a "
                "stream to a file first"
            )
        alert_files.append(path)
    if not alert_files:
        raise SetupError(
            f"no alerts in {', '.join(map(str, paths))}: looked for files that end in "
            f"{', '.join(ENDINGS)}"
        )
    return alert_files


class LeftOut(NamedTuple):
    """What `find` leaves out in folders.

    Attributes
    ----------
    others
        Files whose names say that they hold no alerts.
    no_files
        Links, and all that can be read once only, such as a FIFO or a device. Alerts may be missing
        because of them: a link to a folder, or what is named like a file of alerts.
    """

    others: list[Path]
    no_files: list[Path]


def left_out(paths: Iterable[Path]) -> LeftOut:
    """What `find` leaves out in the folders of `paths`."""
    found = [_below(path) for path in paths if path.is_dir()]
    return LeftOut(
        [file for each in found for file in each.others],
        [file for each in found for file in each.no_files],
    )


class _Below(NamedTuple):
    """What a folder and those in it hold, in order: as `LeftOut`, and the files of alerts."""

    alert_files: list[Path]
    others: list[Path]
    no_files: list[Path]


def _below(folder: Path) -> _Below:
    """What a folder holds. Raises `SetupError` if anything in it cannot be looked at."""

    def fail(error: OSError) -> None:
        raise SetupError(f"{error.filename} cannot be read: {error.strerror}") from error

    found = _Below([], [], [])
    try:
        for path, folders, names in os.walk(folder, onerror=fail):
            below = [Path(path, name) for name in folders]
            found.no_files.extend(each for each in below if each.is_symlink())
            for file in (Path(path, name) for name in names):
                if not file.name.endswith(ENDINGS):
                    found.others.append(file)
                elif S_ISREG(file.lstat().st_mode):
                    found.alert_files.append(file)
                else:
                    found.no_files.append(file)
    except OSError as error:  # removed meanwhile, or in a folder that may be listed only
        fail(error)
    for each in found:
        each.sort()
    return found


def read_one(name: str, source: Readable, limit: int = 16 * MIB) -> Iterator[FileAlert]:
    """Every alert in what is read from a source, as `read`."""
    yield from archives.alerts(name, Stream(source), limit)


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
                yield from read_one(str(path), file, limit)
                if identity:
                    check_unchanged(path, file, identity)
        except OSError as error:
            raise SetupError(f"{path} cannot be read: {error.strerror}") from error
