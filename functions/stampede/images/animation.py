"""Animations: pictures one after another in one file, APNG or GIF."""

from collections.abc import Sequence
from enum import StrEnum
from io import BytesIO

import numpy as np

from stampede.images.png import BLANK

MILLISECONDS = 400
"""How long each picture is shown."""


class AnimationFormat(StrEnum):
    """Formats of an animation: APNG (Third Edition of the PNG specification) and GIF89a."""

    APNG = "apng"
    GIF = "gif"


def animate(pictures: Sequence[np.ndarray], animation: AnimationFormat) -> bytes:
    """An animated file that shows each picture for `MILLISECONDS`, for ever.

    Parameters
    ----------
    pictures
        At least one; uint8, shape (rows, columns), row 0 at the top. Smaller ones are centred.
    """
    from PIL import Image  # few requests need it

    shape = tuple(max(sides) for sides in zip(*(one.shape for one in pictures), strict=True))
    first, *others = (Image.fromarray(_centred(one, shape)) for one in pictures)
    file = BytesIO()
    first.save(
        file,
        "PNG" if animation == AnimationFormat.APNG else "GIF",
        save_all=True,
        append_images=others,
        duration=MILLISECONDS,
        loop=0,
    )
    return file.getvalue()


def _centred(picture: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if picture.shape == shape:
        return picture
    top, left = ((side - own) // 2 for side, own in zip(shape, picture.shape, strict=True))
    height, width = picture.shape
    whole = np.full(shape, BLANK, np.uint8)
    whole[top : top + height, left : left + width] = picture
    return whole
