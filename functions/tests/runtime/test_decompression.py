"""For every decoder: all that was given comes back, or nothing does."""

import bz2
import gzip
import lzma
import random
import time
import tracemalloc
import zlib
from collections.abc import Callable
from typing import NamedTuple

import cramjam
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from stampede.ingest.stream import (
    Decompressed,
    Inflated,
    Stream,
    bunzip2,
    fault_of,
    unxz,
)
from stampede.ingest.stream import (
    gunzip as gunzip_stream,
)
from stampede.runtime.decompression import (
    MOST_MEMBERS,
    NotWhole,
    TooLong,
    gunzip,
    gzip_begins,
    inflate,
    unsnappy,
    unzstd,
)

LIMIT = 1000


class Codec(NamedTuple):
    """A way to compress, and what reads it here."""

    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes], bytes]
    joins: bool  # whether two files one after the other are a file


def deflated(data: bytes, checksum: int = 0) -> bytes:
    """As a container has it, with the first `checksum` bytes of the Adler-32."""
    packed = zlib.compress(data)
    return packed[2 : len(packed) - 4 + checksum]


def snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data)) + zlib.crc32(data).to_bytes(4, "big")


def streamed(decompress: Callable[[Stream], Decompressed]) -> Callable[[bytes], bytes]:
    """A decompressor of streams, called with whole bytes, in pieces of three."""

    class Pieces:
        def __init__(self, data: bytes) -> None:
            self.data = data

        def read(self, size: int) -> bytes:
            piece, self.data = self.data[: min(size, 3)], self.data[min(size, 3) :]
            return piece

    def whole(data: bytes) -> bytes:
        if fault := fault_of(decompress(Stream(Pieces(data)))):
            raise NotWhole(fault)
        return Stream(decompress(Stream(Pieces(data)))).read(LIMIT)

    return whole


CODECS = {
    "gzip": Codec(gzip.compress, lambda data: gunzip(data, LIMIT), True),
    "deflate": Codec(deflated, lambda data: inflate(data, LIMIT), False),
    "deflate, as fastavro": Codec(
        lambda data: deflated(data, 3), lambda data: inflate(data, LIMIT), False
    ),
    "snappy": Codec(snappy, lambda data: unsnappy(data, LIMIT), False),
    "zstd": Codec(zstandard.compress, lambda data: unzstd(data, LIMIT), False),
    "gzip stream": Codec(gzip.compress, streamed(gunzip_stream), True),
    "deflate stream": Codec(deflated, streamed(Inflated), False),
    "bzip2 stream": Codec(bz2.compress, streamed(bunzip2), True),
    "xz stream": Codec(lzma.compress, streamed(unxz), True),
}
EACH = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
CONTENTS = st.binary(max_size=300)


@EACH
@given(CONTENTS)
def test_whole_bytes_are_given_back(codec: Codec, content: bytes) -> None:
    assert codec.decompress(codec.compress(content)) == content


@EACH
@given(CONTENTS, st.binary(min_size=1, max_size=40))
def test_bytes_behind_the_end_are_refused(codec: Codec, content: bytes, more: bytes) -> None:
    data = codec.compress(content)
    if codec.joins and not more.strip(b"\0"):
        return  # padding of a stream: see `ingest.stream`
    if data + more in [deflated(content, checksum) for checksum in range(5)]:
        return
    with pytest.raises((NotWhole, TooLong)):
        codec.decompress(data + more)


@EACH
@given(CONTENTS, st.data())
def test_a_cut_is_refused(codec: Codec, content: bytes, data: st.DataObject) -> None:
    whole = codec.compress(content)
    size = data.draw(st.integers(0, len(whole) - 1))
    if whole[:size] in [deflated(content, checksum) for checksum in range(4)]:
        return
    with pytest.raises(NotWhole):
        codec.decompress(whole[:size])


@EACH
@given(CONTENTS, CONTENTS)
def test_two_members_are_joined_or_refused(codec: Codec, one: bytes, two: bytes) -> None:
    data = codec.compress(one) + codec.compress(two)
    if codec.joins:
        assert codec.decompress(data) == one + two
    else:
        with pytest.raises((NotWhole, TooLong)):
            codec.decompress(data)


@given(st.lists(CONTENTS, min_size=1, max_size=6), st.binary(max_size=4))
def test_gzip_is_read_as_python_reads_it(contents: list[bytes], more: bytes) -> None:
    """But zeros behind it are refused: they are bytes, and not given back."""
    data = b"".join(map(gzip.compress, contents)) + more
    try:
        expected = gzip.decompress(data)
    except (OSError, EOFError):
        expected = None
    if expected is None or more:
        with pytest.raises(NotWhole):
            gunzip(data, 6 * 300)
    else:
        assert gunzip(data, 6 * 300) == expected


@given(CONTENTS)
def test_frames_that_hold_nothing_are_refused_behind_another(content: bytes) -> None:
    """Arrow and the `zstd` tool skip them, and with them what they carry."""
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"data"
    frame = zstandard.compress(content)
    for more in (skippable, zstandard.compress(b""), frame):
        for data in (frame + more, more + frame):
            with pytest.raises((NotWhole, TooLong)):
                unzstd(data, LIMIT)


@pytest.mark.parametrize(
    ("compress", "decompress"),
    [
        (gzip.compress, gunzip),
        (deflated, inflate),
        (snappy, unsnappy),
        (zstandard.compress, unzstd),
    ],
    ids=["gzip", "deflate", "snappy", "zstd"],
)
def test_no_more_than_the_limit_is_made(compress: Callable, decompress: Callable) -> None:
    assert decompress(compress(bytes(LIMIT)), LIMIT) == bytes(LIMIT)
    for size in (LIMIT + 1, 100 * LIMIT):
        with pytest.raises(TooLong):
            decompress(compress(bytes(size)), LIMIT)
    assert decompress(compress(b""), 0) == b""


def run_of_zeros(blocks: int) -> bytes:
    """A Zstandard frame that says it is empty, and repeats a byte 128 KiB in each block."""
    block = (1 << 20 | 1 << 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x20\0" + block * blocks + b"\x01\0\0"


@pytest.mark.parametrize(
    "frame",
    [
        zstandard.ZstdCompressor(write_content_size=False).compress(bytes(10 << 20)),
        run_of_zeros(80),
    ],
    ids=["no length", "length 0"],
)
def test_a_frame_that_hides_its_length_needs_no_memory(frame: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(NotWhole):
            unzstd(frame, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_members_without_end_take_little_time() -> None:
    one = gzip.compress(b"x")
    assert gunzip(one * MOST_MEMBERS, LIMIT) == b"x" * MOST_MEMBERS
    with pytest.raises(NotWhole, match="more than 32 members"):
        gunzip(one * 100_000, LIMIT)
    with pytest.raises(TooLong):
        gunzip(gzip.compress(bytes(900)) * 2, LIMIT)


def cpu_of(call: Callable[[], object]) -> float:
    """CPU seconds of a hundred calls, the least of five turns."""

    def once() -> float:
        begin = time.thread_time()
        for _ in range(100):
            call()
        return time.thread_time() - begin

    return min(once() for _ in range(5))


def test_the_beginning_of_a_file_costs_a_part_of_all_of_it() -> None:
    """Three are read of each ZTF alert: 14 us each, where all of a stamp takes 60."""
    body = random.Random(1).randbytes(20_000)  # a stamp
    data = gzip.compress(bytes(byte & 63 for byte in body))
    whole = 20_000
    assert gzip_begins(data, 2880) == gunzip(data, whole)[:2880]
    assert cpu_of(lambda: gzip_begins(data, 2880)) < 0.6 * cpu_of(lambda: gunzip(data, whole))
