"""Turns pictures so that north is up and east is left.

The header of Rubin's cutouts has a matrix PC, in degrees. It has no CTYPE, but its axes are those
of a tangential projection: the positions of the alerts of one detector show it. ZTF's stamps have
no coordinates, so their survey's `SKY_AXES` count.
docs/measurements/0032-north-up.md has the evidence.
"""

import math
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stampede.alerts import surveys
from stampede.alerts.surveys.survey import SkyAxes
from stampede.images.hdu import Hdu

MOST_PLACES = 128  # of 63 x 63 pixels: 4 MB
LARGEST = 1024
"""Longer side, in pixels, of a picture that is enlarged because it was rotated."""
ENLARGED = 4


class Orientation(StrEnum):
    """Which direction of a picture is up: north, or the last row of the survey's file."""

    NORTH = "north"
    SURVEY = "survey"


class Turn(NamedTuple):
    """How to bring north up: mirror left and right, then rotate counter-clockwise by `degrees`."""

    mirrored: bool
    degrees: int


NO_TURN = Turn(False, 0)


def sky_axes(hdu: Hdu, survey: str | None = None) -> SkyAxes | None:
    """How an image lies on the sky: as its header says, else as its survey says.

    Returns None if neither says it, or if the header's matrix is singular. Raises `BadImage` if a
    card is not a number.
    """
    if b"PC1_1   " not in hdu.header:
        return surveys.named(survey).SKY_AXES if survey in surveys.names() else None
    x, y = hdu.number(b"CDELT1", 1), hdu.number(b"CDELT2", 1)
    axes = SkyAxes(
        x * hdu.number(b"PC1_1", 1),
        x * hdu.number(b"PC1_2", 0),
        y * hdu.number(b"PC2_1", 0),
        y * hdu.number(b"PC2_2", 1),
    )
    area = _area(axes)
    return axes if math.isfinite(area) and area else None


def pixel_scale(axes: SkyAxes) -> float:
    """Side of a pixel in arcseconds."""
    return 3600 * math.sqrt(abs(_area(axes)))


def _area(axes: SkyAxes) -> float:
    """Square degrees of a pixel; negative if east is left of north, as on a map of the sky."""
    return axes.x_east * axes.y_north - axes.y_east * axes.x_north


def turn_of(axes: SkyAxes | None) -> Turn:
    """The turn of an image with these axes, to a whole degree."""
    if axes is None:
        return NO_TURN
    mirrored = _area(axes) > 0
    x_east = -axes.x_east if mirrored else axes.x_east
    # North is where the east component is 0, and east is left of it: at (y_east, -x_east) pixels.
    north = math.degrees(math.atan2(-x_east, axes.y_east))
    return Turn(mirrored, round(90 - north) % 360)


def turned_size(shape: tuple[int, ...], turn: Turn) -> tuple[float, float]:
    """Rows and columns that a turned picture of `shape` (rows, columns) takes, in its pixels."""
    height, width = shape
    cos, sin = (abs(ratio(math.radians(turn.degrees))) for ratio in (math.cos, math.sin))
    return height * cos + width * sin, width * cos + height * sin


def turned(picture: np.ndarray, turn: Turn, size: int | None, blank: int) -> np.ndarray:
    """The whole picture, turned: uint8, row 0 at the top, as `picture`.

    Parameters
    ----------
    size
        Pixels along the longer side. None keeps the size, but a picture that is not turned by a
        multiple of 90 degrees is enlarged, so that its pixels stay squares.
    blank
        Grey of the corners that the picture does not fill.
    """
    picture, degrees = quarter_turned(picture, turn)
    if not degrees:
        return picture
    rows, columns = turned_size(picture.shape, Turn(False, degrees))
    longer = max(rows, columns)
    scale = (size or min(ENLARGED * longer, max(longer, LARGEST))) / longer
    shape = (max(1, round(rows * scale)), max(1, round(columns * scale)))
    return _filled(picture, _places(picture.shape, degrees, shape, scale), blank)


def turned_in_square(picture: np.ndarray, turn: Turn, side: int, blank: int) -> np.ndarray:
    """A picture, turned, about the centre of a square whose side its longer side fills.

    A rotation cuts its corners off. The turn must not be a multiple of 90 degrees.
    """
    picture, degrees = quarter_turned(picture, turn)
    return _filled(picture, _square_places(picture.shape, degrees, side), blank)


def quarter_turned(picture: np.ndarray, turn: Turn) -> tuple[np.ndarray, int]:
    """A view of the picture, mirrored and rotated by 90 degrees as often as the turn has them.

    Also the degrees that remain, 0 to 89.
    """
    quarters, degrees = divmod(turn.degrees, 90)
    if turn.mirrored:
        if quarters == 2:  # ZTF's
            return picture[::-1], degrees
        picture = picture[:, ::-1]
    return np.rot90(picture, quarters) if quarters else picture, degrees


@lru_cache(MOST_PLACES)
def _square_places(shape: tuple[int, int], degrees: int, side: int) -> np.ndarray:
    """The alerts of one visit and detector have one angle, so few are needed at a time."""
    return _places(shape, degrees, (side, side), side / max(shape))


def _places(
    shape: tuple[int, int], degrees: int, size: tuple[int, int], scale: float
) -> np.ndarray:
    """Which pixel to show where, after a counter-clockwise rotation about the centre.

    Returns
    -------
    numpy.ndarray
        Shape `size`: the index of a pixel in the flat image of `shape`, and one more than the last
        outside of the image.
    """
    height, width = shape
    down, right = (
        (np.arange(side, dtype=np.float32) + np.float32(0.5 - side / 2)) / np.float32(scale)
        for side in size
    )
    cos, sin = (
        np.float32(math.cos(math.radians(degrees))),
        np.float32(math.sin(math.radians(degrees))),
    )
    column = np.floor(cos * right - sin * down[:, None] + np.float32(width / 2)).astype(np.intp)
    row = np.floor(sin * right + cos * down[:, None] + np.float32(height / 2)).astype(np.intp)
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    return np.where(inside, row * width + column, height * width)


def _filled(picture: np.ndarray, places: np.ndarray, blank: int) -> np.ndarray:
    return np.append(picture, np.uint8(blank)).take(places)
