"""Zstandard frames: damage and excess size are found before memory is taken."""

import random
from concurrent.futures import ThreadPoolExecutor

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.store.parquet.zstd import compress, decompress, frames, stored


def as_it_is(*pieces: bytes) -> bytes:
    return b"".join(stored(pieces))


@given(st.lists(st.binary(max_size=300), max_size=5), st.booleans())
def test_frames_are_read_one_by_one_and_in_a_row(pieces: list[bytes], as_they_are: bool) -> None:
    made = [as_it_is(piece[:9], piece[9:]) if as_they_are else compress(piece) for piece in pieces]
    assert [decompress(frame, 300) for frame in made] == pieces
    found = list(frames(memoryview(b"".join(made))))
    assert [frame.length for frame in found] == list(map(len, made))
    assert [frame.content for frame in found] == list(map(len, pieces))


@pytest.mark.parametrize("frame", [compress(b"an image" * 20), as_it_is(*[b"an image"] * 20)])
def test_a_frame_that_is_cut_anywhere_is_an_error(frame: bytes) -> None:
    for end in range(len(frame)):
        with pytest.raises(ValueError, match="frame"):
            decompress(frame[:end], 1000)


def test_a_frame_of_more_than_the_limit_is_not_decompressed() -> None:
    with pytest.raises(ValueError, match="the limit is 999"):
        decompress(compress(bytes(1000)), 999)


def test_a_frame_of_several_blocks_comes_back() -> None:
    pieces = [b"a" * 200_000, b"b" * 100_000]
    assert decompress(as_it_is(*pieces), 300_000) == b"".join(pieces)


def test_threads_that_compress_at_once_do_not_harm_each_other() -> None:
    """A context that two threads used at once would make frames of mixed content."""
    rng = random.Random(1)
    pieces = [rng.choice([b"ab", b"xyz", b"0"]) * rng.randrange(1, 200_000) for _ in range(200)]
    alone = [compress(piece) for piece in pieces]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(compress, pieces)) == alone
    assert [decompress(frame, 600_000) for frame in alone] == pieces


def test_other_decompressors_read_the_frames() -> None:
    piece = bytes(range(256)) * 500
    for frame in (compress(piece), as_it_is(piece)):
        assert bytes(cramjam.zstd.decompress(frame)) == piece
        assert pa.Codec("zstd").decompress(frame, len(piece), asbytes=True) == piece
