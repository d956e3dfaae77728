"""Zstandard frames: damage and excess size are found before memory is taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.store.zstd import compress, decompress, frames, stored


@given(st.lists(st.binary(max_size=300), max_size=5), st.booleans())
def test_frames_are_read_one_by_one_and_in_a_row(pieces: list[bytes], as_they_are: bool) -> None:
    made = [stored([piece[:9], piece[9:]]) if as_they_are else compress(piece) for piece in pieces]
    assert [decompress(frame, 300) for frame in made] == pieces
    found = list(frames(memoryview(b"".join(made))))
    assert [frame.length for frame in found] == list(map(len, made))
    assert [frame.content for frame in found] == list(map(len, pieces))


@pytest.mark.parametrize("frame", [compress(b"an image" * 20), stored([b"an image"] * 20)])
def test_a_frame_that_is_cut_anywhere_is_an_error(frame: bytes) -> None:
    for end in range(len(frame)):
        with pytest.raises(ValueError, match="frame"):
            decompress(frame[:end], 1000)


def test_a_frame_of_more_than_the_limit_is_not_decompressed() -> None:
    with pytest.raises(ValueError, match="the limit is 999"):
        decompress(compress(bytes(1000)), 999)


def test_a_frame_of_several_blocks_comes_back() -> None:
    pieces = [b"a" * 200_000, b"b" * 100_000]
    assert decompress(stored(pieces), 300_000) == b"".join(pieces)
