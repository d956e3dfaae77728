"""Decompresses whole bytes: all that was given, or an error.

A decompressor stops where its data end, and most say nothing of bytes behind that end. So a file of
two gzip members would be given out cut, with no word. Each function here asks whether input is
left. Nothing else in Stampede calls a decompressor, which a lint rule holds (TID251); streams of
files, which are too large for this, have `stampede.ingest.stream`.
"""

import threading
import zlib

import cramjam
import zstandard
from isal import isal_zlib
from isal.igzip_lib import IsalError

Bytes = bytes | memoryview

MOST_MEMBERS = 32
"""Most members of a gzip file: each costs a copy of all that follow it."""
_GZIP, _RAW = 16 + zlib.MAX_WBITS, -zlib.MAX_WBITS
_SHORT = 5  # bytes: no snappy block with its checksum is shorter


class NotWhole(ValueError):
    """The bytes are damaged, cut short, or followed by others."""


class TooLong(ValueError):
    """The bytes would decompress to more than the limit."""


def is_gzip(data: Bytes) -> bool:
    """Whether bytes begin as a gzip file does (RFC 1952)."""
    return bytes(data[:2]) == b"\x1f\x8b"


def gunzip(data: Bytes, limit: int) -> bytes:
    """The content of a gzip file, that of all its members joined (RFC 1952, 2.2).

    Raises `NotWhole` and `TooLong`.
    """
    pieces: list[bytes] = []
    room = limit
    for _ in range(MOST_MEMBERS):
        member = isal_zlib.decompressobj(_GZIP)  # noqa: TID251
        try:
            piece = member.decompress(data, room + 1)
        except IsalError as error:  # type: ignore[misc]  # its stub forgets the base class
            raise NotWhole(f"is damaged: {error}") from None
        if len(piece) > room:
            raise TooLong(f"unpacks to more than {limit:,} bytes")
        if not member.eof:
            raise NotWhole("is cut short")
        pieces.append(piece)
        room -= len(piece)
        data = member.unused_data
        if not data:
            return piece if len(pieces) == 1 else b"".join(pieces)
        if not is_gzip(data):
            raise NotWhole(f"is followed by {len(data):,} other bytes")
    raise NotWhole(f"has more than {MOST_MEMBERS} members")


def gzip_begins(data: Bytes, size: int) -> bytes:
    """The first `size` bytes of a gzip file's first member, fewer at its end. Raises `NotWhole`.

    zlib stops there, after 14 us of a ZTF stamp; isal unpacks ahead, and takes 60.
    """
    try:
        return zlib.decompressobj(_GZIP).decompress(data, size)  # noqa: TID251
    except zlib.error as error:
        raise NotWhole(f"is damaged: {error}") from None


def inflate(data: Bytes, limit: int) -> bytes:
    """The content of a block of Avro in the codec deflate: raw deflate data (RFC 1951).

    Nothing may follow the data but their Adler-32 (RFC 1950), whole or the beginning of it: the
    codec has none, but fastavro's writer leaves three of its four bytes there. So these are
    compared.

    Raises `NotWhole` and `TooLong`.
    """
    block = zlib.decompressobj(_RAW)  # noqa: TID251
    try:
        content = block.decompress(data, limit + 1)
    except zlib.error as error:
        raise NotWhole(str(error)) from None
    if len(content) > limit:
        raise TooLong(f"unpacks to more than {limit:,} bytes")
    if not block.eof:
        raise NotWhole("it is cut off")
    if (rest := block.unused_data) and not zlib.adler32(content).to_bytes(4, "big").startswith(
        rest
    ):
        raise NotWhole(f"it is followed by {len(rest):,} bytes that are not its checksum")
    return content


def unsnappy(data: Bytes, limit: int) -> bytes:
    """The content of a block of Avro in the codec snappy: raw snappy and its CRC-32, big-endian.

    Raises `NotWhole` and `TooLong`.
    """
    if len(data) < _SHORT:
        raise NotWhole("it is cut off")
    body, crc = bytes(data[:-4]), bytes(data[-4:])
    try:
        if cramjam.snappy.decompress_raw_len(body) > limit:
            raise TooLong(f"unpacks to more than {limit:,} bytes")
        content = bytes(cramjam.snappy.decompress_raw(body))  # noqa: TID251
    except cramjam.DecompressionError as error:
        raise NotWhole(str(error)) from None
    if zlib.crc32(content).to_bytes(4, "big") != crc:
        raise NotWhole("its checksum does not fit")
    return content


class _Contexts(threading.local):
    """A decompressor for each thread: it is made once, and serves one thread at a time."""

    def __init__(self) -> None:
        self.zstd = zstandard.ZstdDecompressor()  # noqa: TID251


_contexts = _Contexts()


def unzstd(data: Bytes, limit: int) -> bytes:
    """The content of one Zstandard frame that says how long its content is (RFC 8878).

    By `zstandard`, which takes 1.2 us for 15 KB: Arrow's codec takes 11.6, as it makes a context
    for each call. Raises `NotWhole` and `TooLong`.
    """
    try:
        size = zstandard.frame_content_size(data)
        if size > limit:
            raise TooLong(f"unpacks to {size:,} bytes, the limit is {limit:,}")
        if size < 0:
            raise NotWhole("it is no frame that says how long its content is")
        if size:
            return _contexts.zstd.decompress(data, read_across_frames=False, allow_extra_data=False)
        frame = _contexts.zstd.decompressobj()  # `decompress` does not look at an empty frame
        content = frame.decompress(data)
    except zstandard.ZstdError as error:
        raise NotWhole(str(error)) from None
    if content or not frame.eof or frame.unused_data:
        raise NotWhole("it is no empty frame, or other bytes follow it")
    return content
