"""Grey PNGs of images, as they lie in their file with row 0 at the bottom, or turned."""

import struct
import zlib

import numpy as np
from isal import isal_zlib

from stampede.images.orientation import NO_TURN, Turn, turned
from stampede.images.stretch import Stretch, stretch

BLANK = 64
"""Grey of a pixel without a value."""


def png(
    image: np.ndarray,
    kind: Stretch = Stretch.ASINH,
    low: float | None = None,
    high: float | None = None,
    size: int | None = None,
    turn: Turn = NO_TURN,
    within: tuple[float, float] | None = None,
) -> bytes:
    """A grey 8-bit PNG of an image.

    Parameters
    ----------
    image
        Shape (rows, columns), row 0 at the bottom as in FITS.
    kind, low, high, within
        As in `stampede.images.stretch.stretch`.
    size
        Pixels along the longer side. Scaling is by nearest neighbour, so each pixel of the
        detector stays one flat square. None keeps the image's size, but see `turned`.
    turn
        From the survey's orientation to that of the PNG.
    """
    return encode(drawn(image, kind, low, high, size, turn, within))


def drawn(
    image: np.ndarray,
    kind: Stretch = Stretch.ASINH,
    low: float | None = None,
    high: float | None = None,
    size: int | None = None,
    turn: Turn = NO_TURN,
    within: tuple[float, float] | None = None,
) -> np.ndarray:
    """The picture that `png` encodes: uint8, row 0 at the top."""
    picture = turned(greys(image, kind, low, high, within), turn, size, BLANK)
    return scaled(picture, size) if size else picture


def greys(
    image: np.ndarray,
    kind: Stretch = Stretch.ASINH,
    low: float | None = None,
    high: float | None = None,
    within: tuple[float, float] | None = None,
) -> np.ndarray:
    """The picture of an image: uint8 of the same shape, row 0 at the top."""
    bright = np.rint(stretch(image, kind, low, high, within) * 255)
    blank = np.isnan(bright)
    if blank.any():
        bright[blank] = BLANK
    return np.flipud(bright.astype(np.uint8))


def scaled(picture: np.ndarray, size: int, averaged: bool = False) -> np.ndarray:
    """A picture whose longer side is `size` pixels: the nearest ones, or `averaged` over boxes."""
    from PIL import Image  # most images are sent or drawn without it

    how = Image.Resampling.BOX if averaged else Image.Resampling.NEAREST
    longer = max(picture.shape)
    height, width = (max(1, round(side * size / longer)) for side in picture.shape)
    return np.asarray(Image.fromarray(picture).resize((width, height), how))


def placeholder(size: int = 63) -> bytes:
    """The PNG shown in place of a missing or damaged image: a crossed square."""
    return encode(frame(size, crossed=True))


def frame(size: int, crossed: bool) -> np.ndarray:
    """An empty square, or a crossed one, as a picture: uint8, shape (size, size)."""
    picture = np.full((size, size), BLANK, np.uint8)
    picture[[0, -1]] = picture[:, [0, -1]] = 128
    if crossed:
        np.fill_diagonal(picture, 128)
        np.fill_diagonal(np.fliplr(picture), 128)
    return picture


def encode(picture: np.ndarray) -> bytes:
    """The PNG (ISO/IEC 15948) of a picture: uint8, shape (rows, columns), row 0 at the top.

    Rows are not filtered, because a cutout is mostly noise: no pixel predicts the next. A
    thumbnail takes 0.03 ms and 9.0 KB; Pillow at level 1 takes 0.31 ms and 9.5 KB.
    """
    height, width = picture.shape
    rows = np.zeros((height, 1 + width), np.uint8)  # before each row its filter type, 0: none
    rows[:, 1:] = picture
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
            _chunk(b"IDAT", isal_zlib.compress(rows, 1)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(name: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(data, zlib.crc32(name))
    return struct.pack(">I4s", len(data), name) + data + struct.pack(">I", checksum)
