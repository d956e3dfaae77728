"""The byte offsets of the images in a pack: of the values of a Parquet column.

For a BYTE_ARRAY column that is PLAIN and not compressed, Parquet writes each value unchanged, after
its length (4 bytes, little endian). The values are in order and adjacent, except where a new page
starts.
"""

import numpy as np
import pyarrow as pa

# Bytes at both ends of an image that are compared.
_EDGE = 64
_AHEAD = 128  # images checked together: a page of images of 15 KB has about 90


def find_images(images: pa.Array, data: pa.Buffer) -> tuple[np.ndarray, np.ndarray]:
    """Offset in the pack `data` and length of each of `images`; both of shape (n,).

    The offset of a null is 0. Raises ValueError if an image is not in the pack.
    """
    offsets = np.zeros(len(images), np.int64)
    if not len(images):
        return offsets, offsets
    _, bounds, values = images.buffers()
    bounds = np.frombuffer(bounds, np.int32)[images.offset : images.offset + len(images) + 1]
    lengths = np.diff(bounds)
    rows = np.flatnonzero(images.is_valid().to_numpy(zero_copy_only=False))
    search = _Search(values or pa.py_buffer(b""), bounds[rows], lengths[rows], data)
    number = position = 0
    while number < len(rows):
        positions = search.follow(number, search.first(number, position))
        end = number + len(positions)
        offsets[rows[number:end]] = positions + 4
        position = int(positions[-1] + 4 + lengths[rows[end - 1]])
        number = end
    return offsets, lengths


class _Search:
    """Finds values in a pack, in order. The position of a value is that of its length.

    Any match at or before the true position of a value is as good as the true one: the bytes are
    the same, and the values after it still lie behind it.

    Parameters
    ----------
    values
        Buffer with the bytes of all values.
    starts, sizes
        Where each value lies in it, nulls left out; shape (n,).
    data
        The pack.
    """

    def __init__(
        self, values: pa.Buffer, starts: np.ndarray, sizes: np.ndarray, data: pa.Buffer
    ) -> None:
        self._values, self._starts, self._sizes, self._data = values, starts, sizes, data
        # Distance of each value from the first if all were in one page.
        self._distances = np.cumsum(4 + sizes, dtype=np.int64) - 4 - sizes
        self._has_head = sizes >= 8
        self._heads = _words(values, "<u8", np.where(self._has_head, starts, 0))

    def first(self, number: int, position: int) -> int:
        """The first position of a value at or after `position`."""
        while not self._lies_at(number, position):
            position = _next(self._data, _beginning(self._value(number)), position + 1)
        return position

    def follow(self, number: int, position: int) -> np.ndarray:
        """Positions of a value, which lies at `position`, and of those right behind it.

        At most `_AHEAD`, up to the end of the page. For all of them, lengths and first 8 bytes are
        compared in one step; the edges are compared for the last one only.
        """
        ahead = slice(number, number + _AHEAD)
        expected = position + self._distances[ahead] - self._distances[number]
        matches = self._has_head[ahead] & (
            _words(self._data, "<u4", expected) == self._sizes[ahead]
        )
        matches &= _words(self._data, "<u8", expected + 4) == self._heads[ahead]
        count = max(1, int(np.append(matches, False).argmin()))
        while not self._lies_at(number + count - 1, int(expected[count - 1])):
            count -= 1
        return expected[:count]

    def _lies_at(self, number: int, position: int) -> bool:
        """Whether a value's length, first and last bytes are at `position`."""
        value = self._value(number)
        edge = min(value.size, _EDGE)
        if self._data.slice(position, 4 + edge).to_pybytes() != _beginning(value):
            return False
        end = position + 4 + value.size
        return self._data.slice(end - edge, edge).equals(value.slice(value.size - edge))

    def _value(self, number: int) -> pa.Buffer:
        return self._values.slice(int(self._starts[number]), int(self._sizes[number]))


def _beginning(value: pa.Buffer) -> bytes:
    """How a value begins in a pack: its length and first bytes."""
    return value.size.to_bytes(4, "little") + value.slice(0, min(value.size, _EDGE)).to_pybytes()


def _words(data: pa.Buffer, kind: str, positions: np.ndarray) -> np.ndarray:
    """The numbers at these positions, aligned or not; beyond the end, the last number."""
    room = data.size + 1 - np.dtype(kind).itemsize
    if room <= 0:
        return np.zeros(len(positions), kind)
    return np.ndarray(room, kind, data, strides=(1,))[np.minimum(positions, room - 1)]


def _next(data: pa.Buffer, beginning: bytes, position: int) -> int:
    """Where `beginning` first occurs at or after `position`: most often behind a page's header."""
    for window in (1 << 12, 1 << 17, data.size):
        piece = data.slice(position, min(window, data.size - position)).to_pybytes()
        if (index := piece.find(beginning)) >= 0:
            return position + index
    raise ValueError("an image is not in its pack as it was given: is its column PLAIN?")
