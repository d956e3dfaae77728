"""Zstandard frames: compressed, decompressed within a bound, and found in a row of them.

RFC 8878 describes the format. A decompressor takes frames one after the other for one, so a page
of a Parquet file may consist of several, and each can be read alone.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import zstandard

from stampede.runtime import decompression
from stampede.runtime.decompression import Bytes

_MAGIC = b"\x28\xb5\x2f\xfd"
_RAW_BLOCK = 1 << 17  # most bytes in a block
VERSION = zstandard.__version__
"""The version of the library whose frames these are; another one may make other bytes."""
_LEVEL = 1
_FAR_WINDOW = 23  # 8 MB


class _Contexts(threading.local):
    """A compressor for each thread: a context is made once, and serves one thread at a time."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL)
        far = zstandard.ZstdCompressionParameters.from_level(
            _LEVEL, window_log=_FAR_WINDOW, enable_ldm=True
        )
        self.far = zstandard.ZstdCompressor(compression_params=far)


_contexts = _Contexts()


class Frame(NamedTuple):
    """Where a frame begins and how long it is, compressed and decompressed: bytes."""

    start: int
    length: int
    content: int


def compress(data: bytes) -> bytes:
    """One frame, which says how much it holds.

    Level 1: the images of a real Rubin alert take 0.39 of their size, 0.40 at level -1. By
    `zstandard`, because Arrow takes 20 us to begin a frame: it makes a new context for each.
    """
    return _contexts.compressor.compress(data)


def compress_repeats(data: bytes) -> bytes:
    """As `compress`, for data that repeat what came up to 8 MB before."""
    return _contexts.far.compress(data)


def stored(pieces: Sequence[Bytes]) -> list[Bytes]:
    """One frame of these pieces as they are, for data that is compressed already; in pieces."""
    size = sum(map(len, pieces))
    head = _MAGIC + b"\xa0" + size.to_bytes(4, "little")  # no window
    if size <= _RAW_BLOCK:
        return [head + (size << 3 | 1).to_bytes(3, "little"), *pieces]
    parts: list[Bytes] = [head]
    data = memoryview(b"".join(pieces))
    for start in range(0, size, _RAW_BLOCK):
        block = data[start : start + _RAW_BLOCK]
        last = start + _RAW_BLOCK >= len(data)
        parts += (len(block) << 3 | last).to_bytes(3, "little"), block
    return parts


def decompress(frame: bytes | memoryview | pa.Buffer, most: int) -> bytes:
    """What one frame holds.

    Raises `ValueError` if it is damaged, followed by other bytes, or holds more than `most` bytes.
    """
    try:
        return decompression.unzstd(memoryview(frame).cast("B"), most)
    except ValueError as error:
        raise ValueError(f"the Zstandard frame is not whole: {error}") from None


def frames(data: memoryview) -> Iterator[Frame]:
    """The frames that `data` consists of. Raises `ValueError` or `IndexError` if it does not."""
    start = 0
    while start < len(data):
        content, at = _content(data, start)
        last = False
        while not last:
            head = int.from_bytes(data[at : at + 3], "little")
            if at + 3 > len(data):
                raise ValueError("a Zstandard frame is cut short")
            last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
            at += 3 + (1 if kind == 1 else size)  # of a run of one byte, that byte alone
        at += 4 if data[start + 4] & 4 else 0  # checksum
        if at > len(data):
            raise ValueError("a Zstandard frame is cut short")
        yield Frame(start, at - start, content)
        start = at


def _content(data: memoryview, start: int) -> tuple[int, int]:
    """How many bytes a frame holds, and where its first block begins."""
    if data[start : start + 4] != _MAGIC or start + 5 > len(data):
        raise ValueError("the bytes are not a Zstandard frame")
    described = data[start + 4]
    single = described & 0x20
    at = start + 5 + (0 if single else 1) + (0, 1, 2, 4)[described & 3]
    width = (1 if single else 0, 2, 4, 8)[described >> 6]
    if not width or at + width > len(data):
        raise ValueError("the Zstandard frame does not say how much it holds")
    size = int.from_bytes(data[at : at + width], "little")
    return size + (256 if width == 2 else 0), at + width
