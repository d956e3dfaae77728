"""Alerts from disk: Avro files, folders of them, tarballs, gzipped or not."""

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import fastavro

from stampede.alerts import container
from stampede.alerts.schemas import parsed
from stampede.errors import SetupError

AVRO = (".avro", ".avro.gz")
TAR = (".tar", ".tar.gz", ".tgz")
NOT_OF_A_TOPIC = re.compile("[^A-Za-z0-9._-]+")


class FromDisk(NamedTuple):
    """One alert's bytes, framed as a survey sends them, and where they were found."""

    name: str
    data: bytes


def find(paths: Iterable[Path]) -> list[Path]:
    """The files of alerts at `paths` and below, in order.

    Raises `SetupError` for a path that is not there, and where there is nothing at all.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(p for p in path.rglob("*") if p.name.endswith(AVRO + TAR))
        elif path.exists():
            found.append(path)
        else:
            raise SetupError(f"{path}: there is no such file or folder")
    if not found:
        raise SetupError(
            f"no alerts in {', '.join(map(str, paths))}: looked for files that end in "
            f"{', '.join(AVRO + TAR)}"
        )
    return found


def name_of(files: Iterable[Path]) -> str:
    """A name for these very files, the same every time: for the ledger, in place of a topic.

    It has the letters of a topic's name, whatever the files' have.
    """
    state = blake2b(digest_size=4)
    files = list(files)
    for file in files:
        state.update(f"{file.name} {file.stat().st_size}\n".encode())
    stem = files[0].name.split(".")[0] if len(files) == 1 else files[0].parent.name or "alerts"
    return f"files-{NOT_OF_A_TOPIC.sub('-', stem)[:100]}-{state.hexdigest()}"


def read(files: Iterable[Path]) -> Iterator[FromDisk]:
    """Every alert in these files, one after the other, never all in memory.

    A file or tar member that cannot be taken apart is given as it is: whoever stores it will
    say what is wrong with it, and keep it.
    """
    for file in files:
        if file.name.endswith(TAR):
            yield from _tar(file)
        else:
            yield from _split(str(file), _unzipped(file.read_bytes()))


def _tar(file: Path) -> Iterator[FromDisk]:
    try:
        with tarfile.open(file, "r|*", tarinfo=Member) as tar:
            for member in iter(tar.next, None):
                tar.members.clear()  # type: ignore[attr-defined]  # else it keeps them all
                if member.isfile() and (content := tar.extractfile(member)):
                    yield from _split(f"{file}:{member.name}", _unzipped(content.read()))
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise SetupError(f"{file} cannot be read to its end: {error}") from error


class Member(tarfile.TarInfo):
    """A member of a tar that must be whole: a damaged header is not the end of the tar."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> "Member":
        """Read the next header. Raises `tarfile.ReadError` where there is none, nor an end."""
        try:
            return super().fromtarfile(tar)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the end that a tar has
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error}, {tar.offset:,} bytes in") from None


def _unzipped(data: bytes) -> bytes:
    """The content of a gzip file; anything else, a damaged one too, as it is."""
    if data[:2] == b"\x1f\x8b":
        try:
            return gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            pass
    return data


def _split(name: str, data: bytes) -> list[FromDisk]:
    """One alert per record of a container; anything else is one alert."""
    if data[:4] == container.MAGIC:
        try:
            header = container.read_header(data)
            blocks = list(container.blocks(data, header, len(data) * 100))
            if [count for count, _ in blocks] != [1]:
                return list(_records(name, header, blocks))
        except Exception:  # the many ways in which bytes can be no Avro: as it is, then
            pass
    return [FromDisk(name, data)]


def _records(
    name: str, header: container.Header, blocks: Iterable[tuple[int, container.Bytes]]
) -> Iterator[FromDisk]:
    """The records of a container of many, each as a container of one."""
    schema = parsed(header.schema)
    head = container.make_header(header.schema)
    for block, (count, records) in enumerate(blocks):
        stream = io.BytesIO(records)
        for number in range(count):
            begin = stream.tell()
            fastavro.schemaless_reader(stream, schema)
            record = records[begin : stream.tell()]
            one = b"".join((head, *container.make_blocks([[record]])))
            yield FromDisk(f"{name}[{block}.{number}]", one)
