"""Finds the alerts in a file of any kind: by its content, archives within archives too."""

import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from stampede.ingest import records
from stampede.ingest.records import FileAlert
from stampede.ingest.stream import (
    BLOCK,
    READ_ERRORS,
    Decompressed,
    Stream,
    bunzip2,
    damage,
    gunzip,
    unxz,
)

MOST_LEVELS = 4  # of archives within archives
TAR_HEAD = 512
COMPRESSED: dict[bytes, tuple[Callable[[Stream], Decompressed], tuple[str, ...]]] = {
    b"\x1f\x8b": (gunzip, (".gz", ".tgz")),
    b"BZh": (bunzip2, (".bz2", ".tbz2")),
    b"\xfd7zXZ": (unxz, (".xz", ".txz")),
}
ZIP = b"PK\x03\x04"
EMPTY_ZIP = b"PK\x05\x06"


def alerts(
    name: str, stream: Stream, limit: int, level: int = 0, ending: str = ""
) -> Iterator[FileAlert]:
    """The alerts in a stream, whatever it is.

    All that cannot be read is one alert with a fault, in the place where it is.

    Parameters
    ----------
    name
        What the alerts are called, with their own places after it.
    limit
        Most bytes of an alert. Of more than that in one piece, only the first are kept.
    level
        How many archives this one is in.
    ending
        A name that says what the stream is, if its bytes do not; else `name`.
    """
    if level > MOST_LEVELS:
        yield FileAlert(name, b"", f"{name}: more than {MOST_LEVELS} archives within each other")
        return
    ending = ending or name
    head = stream.peek(TAR_HEAD)
    for magic, (decompress, _) in COMPRESSED.items():
        if head.startswith(magic):
            yield from _compressed(name, stream, decompress, limit, level, ending)
            return
    if head.startswith(records.MAGIC):
        yield from records.split(name, stream, limit)
    elif head[257:262] == b"ustar" or ending.endswith(".tar"):
        yield from _tar(name, stream, limit, level)
    elif head.startswith((ZIP, EMPTY_ZIP)):
        yield from _zip(name, stream, limit, level)
    else:
        yield _one(name, stream, limit)


def _one(name: str, stream: Stream, limit: int) -> FileAlert:
    """A stream that is one alert, or nothing that can be read."""
    data = stream.read(limit)
    if stream.fault:
        return FileAlert(name, data, f"after {stream.position:,} bytes of {name}: {stream.fault}")
    if not stream.at_end():
        return FileAlert(
            name,
            data,
            f"{name} has more than {limit:,} bytes and is no archive and no container: "
            "these are the first",
        )
    return FileAlert(name, data)


def _compressed(
    name: str,
    stream: Stream,
    decompress: Callable[[Stream], Decompressed],
    limit: int,
    level: int,
    ending: str,
) -> Iterator[FileAlert]:
    """The alerts in compressed data, which are read twice: their checksum is at their end."""
    whole = stream.peek(limit + 1)
    with seekable(stream, whole, limit) as data:
        why = damage(decompress(Stream(data)))
        data.seek(0)
        if why:
            yield FileAlert(name, whole[:limit], f"{name}: {why}; so no byte of it can be trusted")
            return
        content = Stream(decompress(Stream(data)))
        found = alerts(name, content, limit, level + 1, _inner_name(ending))
        first, second = next(found, None), next(found, None)
        if first and first.fault and not second and len(whole) <= limit:
            yield FileAlert(name, whole, first.fault)  # as it is on the disk
            return
        yield from (each for each in (first, second) if each)
        yield from found


@contextmanager
def seekable(stream: Stream, whole: bytes, limit: int) -> Iterator[IO[bytes]]:
    """A file with the rest of a stream, which begins with `whole`; in memory up to `limit`."""
    if len(whole) <= limit:
        stream.skip(len(whole))
        yield io.BytesIO(whole)
        return
    with stream.copy() as copy:
        copy.seek(0)
        yield copy


def _inner_name(name: str) -> str:
    """The name without the end that says how it is compressed."""
    for _, endings in COMPRESSED.values():
        for ending in endings:
            if name.endswith(ending):
                return name.removesuffix(ending) + (".tar" if ending.startswith(".t") else "")
    return name


class Member(tarfile.TarInfo):
    """A member whose damaged header is an error: tarfile would take it for the end of the tar."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> "Member":
        """Read the next header. Raises `tarfile.ReadError` if it is damaged or missing."""
        try:
            member = super().fromtarfile(tar)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # zeros: the end of a tar
            tar.ended = True  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            at_end = isinstance(error, tarfile.EmptyHeaderError)  # type: ignore[attr-defined]
            if at_end and getattr(tar, "ended", False):
                raise
            raise tarfile.ReadError(f"{error}, {tar.offset:,} bytes in") from None
        tar.ended = False  # type: ignore[attr-defined]  # another tar follows the first
        return member


def _tar(name: str, stream: Stream, limit: int, level: int) -> Iterator[FileAlert]:
    found = None
    try:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=Member, ignore_zeros=True) as tar:  # type: ignore[call-overload]
            for member in iter(tar.next, None):
                tar.members.clear()  # otherwise they all stay there
                if member.isfile() and (content := tar.extractfile(member)):
                    inner = Stream(content)
                    for found in alerts(f"{name}:{member.name}", inner, limit, level + 1):
                        if found.fault and stream.fault:
                            found = found._replace(fault=f"{found.fault}; {name}: {stream.fault}")
                        yield found
                elif member.issym() or member.isdev():  # a hard link is another name of a member
                    inner_name = f"{name}:{member.name}"
                    why = f"{inner_name} is a link, a device or a pipe, and no file"
                    yield FileAlert(inner_name, b"", why)
    except READ_ERRORS as error:
        # A member that is cut off has its own fault, which says as much as this one.
        if not (found and found.fault and stream.at_end()):
            yield _broken(name, stream, error)
    else:
        if stream.fault:
            yield _broken(name, stream, stream.fault)


def _zip(name: str, stream: Stream, limit: int, level: int) -> Iterator[FileAlert]:
    # The list of a zip's members is at its end.
    with seekable(stream, stream.peek(limit + 1), limit) as data:
        try:
            if stream.fault:
                raise zipfile.BadZipFile(stream.fault)
            with zipfile.ZipFile(data) as archive:
                for member in archive.infolist():
                    if not member.is_dir():
                        yield from _member(archive, member, name, limit, level)
        except READ_ERRORS as error:
            yield _broken(name, stream, error)


def _member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, limit: int, level: int
) -> Iterator[FileAlert]:
    name = f"{name}:{member.filename}"
    begin = b""
    try:
        # Read it twice: its checksum is at its end.
        with archive.open(member) as content:
            begin = content.read(limit)
            while content.read(BLOCK):
                pass
    except READ_ERRORS as error:
        why = str(error) or type(error).__name__
        yield FileAlert(name, begin, f"{name}: {why}; so no byte of it can be trusted")
        return
    with archive.open(member) as content:
        yield from alerts(name, Stream(content), limit, level + 1)


def _broken(name: str, stream: Stream, error: object) -> FileAlert:
    return FileAlert(
        f"{name}:…",
        b"",
        f"{name} cannot be read to its end, {stream.position:,} bytes in: {stream.fault or error}",
    )
