"""Reads alerts from disk: Avro files, folders, tarballs, gzipped or not."""

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import fastavro

from stampede.alerts import container
from stampede.alerts.schemas import parsed
from stampede.errors import SetupError

AVRO = (".avro", ".avro.gz")
TAR = (".tar", ".tar.gz", ".tgz")


class FileAlert(NamedTuple):
    """The bytes of one alert, framed as its survey sends them, and the file that holds them."""

    name: str
    data: bytes


def find(paths: Iterable[Path]) -> list[Path]:
    """The files of alerts at `paths` and below, in order.

    Raises `SetupError` for a path that is neither, and if there are no files at all.
    """
    alert_files: list[Path] = []
    for path in paths:
        if path.is_dir():
            alert_files += sorted(p for p in path.rglob("*") if p.name.endswith(AVRO + TAR))
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
            f"{', '.join(AVRO + TAR)}"
        )
    return alert_files


def read(files: Iterable[Path]) -> Iterator[FileAlert]:
    """Every alert in these files, in order, without holding all of them in memory.

    A file or tar member that cannot be split is yielded unchanged: the function that receives it
    refuses it with a reason, and it becomes a dead letter.
    """
    for file in files:
        if file.name.endswith(TAR):
            yield from _tar(file)
        else:
            yield from _split(str(file), _unzipped(file.read_bytes()))


def _tar(file: Path) -> Iterator[FileAlert]:
    try:
        with tarfile.open(file, "r|*", tarinfo=Member) as tar:
            for member in iter(tar.next, None):
                tar.members.clear()  # type: ignore[attr-defined]  # otherwise they all stay there
                if member.isfile() and (content := tar.extractfile(member)):
                    yield from _split(f"{file}:{member.name}", _unzipped(content.read()))
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise SetupError(f"{file} cannot be read to its end: {error}") from error


class Member(tarfile.TarInfo):
    """A member whose damaged header is an error: tarfile would take it for the end of the tar."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> "Member":
        """Read the next header. Raises `tarfile.ReadError` if it is damaged."""
        try:
            return super().fromtarfile(tar)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the regular end of a tar
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error}, {tar.offset:,} bytes in") from None


def _unzipped(data: bytes) -> bytes:
    """The content of a gzip file; other bytes and damaged gzip unchanged."""
    if data[:2] == b"\x1f\x8b":
        try:
            return gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            pass
    return data


def _split(name: str, data: bytes) -> list[FileAlert]:
    """One alert per record of a container; anything else is one alert."""
    if data[:4] == container.MAGIC:
        try:
            header = container.read_header(data)
            blocks = list(container.blocks(data, header, len(data) * 100))
            if [count for count, _ in blocks] != [1]:
                return list(_records(name, header, blocks))
        except Exception:  # bytes can fail to be Avro in many ways; then they stay unchanged
            pass
    return [FileAlert(name, data)]


def _records(
    name: str, header: container.Header, blocks: Iterable[tuple[int, container.Bytes]]
) -> Iterator[FileAlert]:
    """The records of a container, each as a container of one record."""
    schema = parsed(header.schema)
    head = container.make_header(header.schema)
    for block, (count, records) in enumerate(blocks):
        stream = io.BytesIO(records)
        for number in range(count):
            begin = stream.tell()
            fastavro.schemaless_reader(stream, schema)
            record = records[begin : stream.tell()]
            data = b"".join((head, *container.make_blocks([[record]])))
            yield FileAlert(f"{name}[{block}.{number}]", data)
