"""Finds the files that hold alerts, and reads the alerts in them."""

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
    """The files of alerts at `paths` and below, in order.

    Raises `SetupError` for a path that is neither, and if there are no files at all.
    """
    paths = list(paths)
    alert_files: list[Path] = []
    for path in paths:
        if path.is_dir():
            alert_files += [file for file in _below(path) if file.name.endswith(ENDINGS)]
        elif path.is_file():
            alert_files.append(path)
        elif path.exists():
            raise SetupError(
                f"{path} is neither a file nor a folder: `ingest` reads a file twice, so write a "
                "stream to a file first"
            )
        else:
            raise SetupError(f"{path}: there is no such file or folder")
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
    return sorted(path for path in folder.rglob("*") if path.is_file())


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
