"""Bytes that are read once, from the front, and may end early.

Files and archives are read as streams, so that memory does not grow with them. Damage is not an
exception here: the stream ends, and `fault` says why. So what came before the damage is not lost.
"""

import bz2
import io
import lzma
import os
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from typing import IO, Protocol

from stampede.errors import SetupError

BLOCK = 1 << 18
ADLER_BYTES = 4
# What the libraries raise for damaged archives, and the system for disks that cannot be read.
# zipfile: RuntimeError for encryption, NotImplementedError for an unknown compression.
READ_ERRORS = (
    *(OSError, EOFError, ValueError, RuntimeError, NotImplementedError),
    *(zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile),
)


class Readable(Protocol):
    """A source of bytes: a file, a member of an archive, or a decompressor."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none only at the end."""


class Stream:
    """Bytes of a source, with a look ahead.

    Attributes
    ----------
    position
        Number of bytes read.
    fault
        Why the bytes end before their end; None if they do not, or if the end was not reached yet.
    """

    def __init__(self, source: Readable) -> None:
        self.position = 0
        self.fault: str | None = None
        self._source = source
        self._ahead, self._begin = b"", 0  # read from the source, and unread from this index on
        self._ended = False

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end; they stay unread."""
        have = len(self._ahead) - self._begin
        if have < size and not self._ended:
            pieces = [self._ahead[self._begin :]]
            while have < size and (piece := self._fetch(size - have)):
                pieces.append(piece)
                have += len(piece)
            self._ahead, self._begin = b"".join(pieces), 0
        return self._ahead[self._begin : self._begin + size]

    def read(self, size: int, /) -> bytes:
        """The next `size` bytes, fewer at the end."""
        data = self.peek(size)
        self._begin += len(data)
        self.position += len(data)
        return data

    def skip(self, size: int) -> None:
        """Read `size` bytes, fewer at the end, and forget them."""
        while size > 0 and (data := self.read(min(size, BLOCK))):
            size -= len(data)

    def copy(self, size: int = sys.maxsize) -> IO[bytes]:
        """Read `size` bytes, fewer at the end, into a temporary file.

        Raises `SetupError` if that has no room: the archive around it is not damaged.
        """
        try:
            copy = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
            while size > 0 and (data := self.read(min(size, BLOCK))):
                size -= copy.write(data)
            copy.flush()
        except OSError as error:
            raise SetupError(
                f"cannot write a temporary file: {error.strerror}; set TMPDIR to a folder with room"
            ) from error
        return copy

    def give_back(self, copy: IO[bytes]) -> None:
        """Make the bytes that were just copied the next ones again."""
        self.position -= copy.seek(0, os.SEEK_END)
        copy.seek(0)
        ahead = io.BytesIO(self._ahead[self._begin :])
        self._source = _Joined(copy, ahead, self._source)
        self._ahead, self._begin, self._ended = b"", 0, False

    def at_end(self) -> bool:
        """Whether nothing is left to read."""
        return not self.peek(1)

    def _fetch(self, size: int) -> bytes:
        try:
            piece = self._source.read(size)
        except READ_ERRORS as error:
            self.fault = str(error) or type(error).__name__
            piece = b""
        if not piece:
            self._ended = True
            self.fault = self.fault or getattr(self._source, "fault", None)
        return piece


class _Joined:
    """Two files and the rest of a source, one after the other."""

    def __init__(self, first: IO[bytes], second: IO[bytes], rest: Readable) -> None:
        self._files, self._rest = [first, second], rest

    @property
    def fault(self) -> str | None:
        return getattr(self._rest, "fault", None)

    def read(self, size: int, /) -> bytes:
        while self._files:
            if data := self._files[0].read(size):
                return data
            self._files.pop(0).close()
        return self._rest.read(size)


class Part:
    """The next `size` bytes of a stream, as a source; a `fault` if the stream has fewer."""

    def __init__(self, stream: Stream, size: int) -> None:
        self.fault: str | None = None
        self._stream, self._left = stream, size

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none only at the end."""
        data = self._stream.read(min(size, self._left))
        self._left -= len(data)
        if not data and self._left:
            self.fault = self._stream.fault or f"{self._left:,} bytes are missing at the end"
        return data


class Decompressor(Protocol):
    """What zlib's, bz2's and lzma's decompressors have in common."""

    @property
    def eof(self) -> bool:
        """Whether the member has ended."""

    @property
    def unused_data(self) -> bytes:
        """What follows the member."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Decompress to at most `max_length` bytes."""


class Decompressed:
    """The decompressed bytes of a stream of one compressed member or more.

    Attributes
    ----------
    damaged
        Whether the fault is damage. Then any byte before it may be wrong too; if the data are only
        cut off, none is.

    Parameters
    ----------
    make
        Makes a decompressor; each member needs a new one.
    magic
        The first bytes of a member. Other bytes after a member are a fault, zeros are padding.
    """

    def __init__(
        self, stream: Stream, make: Callable[[], Decompressor], magic: bytes, name: str
    ) -> None:
        self.fault: str | None = None
        self.damaged = False
        self._stream, self._make, self._magic, self._name = stream, make, magic, name
        self._inner = make()
        self._input = b""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none only at the end."""
        size = min(size, BLOCK)
        while not self.fault:
            if self._inner.eof:
                self._input = self._inner.unused_data
                if self._ends():
                    break
                self._inner = self._make()
            data = self._decompress(size)
            if data:
                return data
            if not self._inner.eof and not self._input and self._stream.at_end():
                self.fault = self._stream.fault or f"the {self._name} data are cut off"
        return b""

    def _decompress(self, size: int) -> bytes:
        if not self._input and getattr(self._inner, "needs_input", True):
            self._input = self._stream.read(BLOCK)
        try:
            data = self._inner.decompress(self._input, size)
        except (zlib.error, OSError, ValueError, EOFError, lzma.LZMAError) as error:
            self.fault, self.damaged = f"the {self._name} data are damaged: {error}", True
            return b""
        # zlib returns what it did not take; the others keep it.
        self._input = getattr(self._inner, "unconsumed_tail", b"")
        return data

    def _ends(self) -> bool:
        """Whether nothing but padding follows the member that has ended."""
        rest = self._input + self._stream.read(max(0, len(self._magic) - len(self._input)))
        while rest and not rest.strip(b"\0"):
            rest = self._stream.read(BLOCK)
        self._input = rest
        if rest and not rest.startswith(self._magic):
            self.fault = f"other bytes follow the {self._name} data"
        return not rest or self.fault is not None


def gunzip(stream: Stream) -> Decompressed:
    """The content of gzip data (RFC 1952)."""
    return Decompressed(stream, lambda: zlib.decompressobj(31), b"\x1f\x8b", "gzip")  # noqa: TID251


class Inflated(Decompressed):
    """The content of a block of Avro in the codec deflate: raw deflate data (RFC 1951).

    Nothing follows them but a part of their checksum: see `decompression.inflate`.
    """

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream, lambda: zlib.decompressobj(-15), b"", "deflate")  # noqa: TID251
        self._checksum = 1

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none only at the end."""
        data = super().read(size)
        self._checksum = zlib.adler32(data, self._checksum)
        return data

    def _ends(self) -> bool:
        rest = self._input + self._stream.read(ADLER_BYTES + 1)
        if not self._checksum.to_bytes(ADLER_BYTES, "big").startswith(rest):
            self.fault, self.damaged = "other bytes follow the deflate data", True
        return True


def bunzip2(stream: Stream) -> Decompressed:
    """The content of bzip2 data."""
    return Decompressed(stream, bz2.BZ2Decompressor, b"BZh", "bzip2")  # noqa: TID251


def unxz(stream: Stream) -> Decompressed:
    """The content of xz data."""
    return Decompressed(stream, lzma.LZMADecompressor, b"\xfd7zXZ", "xz")  # noqa: TID251


def fault_of(source: Decompressed) -> str | None:
    """Why compressed data are not whole and alone, read to their end; None if they are."""
    while source.read(BLOCK):
        pass
    return source.fault


def damage(source: Decompressed) -> str | None:
    """The damage in compressed data, read to their end, where their checksum is; None if none."""
    fault = fault_of(source)
    return fault if source.damaged else None
