"""What an alert may hold, so that everything stored can be served.

`read` accepts the same ids, and refuses to unpack or draw more than an image may have here.
"""

import re
from typing import NamedTuple

OBJECT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
"""Every objectId, diaObjectId and ssObjectId, as text."""

SURVEY_NAME = re.compile("[a-z][a-z0-9]{1,15}")
"""Every name of a survey, and of an archive of light curves."""

MOST_ID = (1 << 63) - 1
"""The greatest id of an alert or of a point; the least is 1."""

EARLIEST_MJD = 33282.0
"""1950-01-01: no survey here observed before, and every calendar can show later days."""

MOST_IMAGE_BYTES = 16 << 20
"""Largest FITS file of a cutout, unpacked: 400 times Rubin's."""

MOST_PIXELS = 1 << 20
"""Most pixels of an image that is drawn or given as an array: 100 times Rubin's."""

DEFLATE_RATIO = 1032
"""A gzip file unpacks to at most so many times its size (zlib's technical details)."""

CARD = 80
_AXIS = re.compile(rb"NAXIS[12] *= *(\d+)")


class TooManyPixels(Exception):
    """An image has more bytes or pixels than can be shown."""


class Times(NamedTuple):
    """Bounds of the time of an alert and of each point of its history, MJD TAI."""

    latest: float
    earliest: float = EARLIEST_MJD

    def __str__(self) -> str:
        return f"MJD {self.earliest:.0f} to {self.latest:.1f}"


def check_image(size: int, header: bytes) -> None:
    """Raise `TooManyPixels` if an image cannot be shown.

    Parameters
    ----------
    size
        Bytes of the FITS file, unpacked.
    header
        Its beginning; the first block of 2880 bytes holds the axes of an image.
    """
    if size > MOST_IMAGE_BYTES:
        raise TooManyPixels(f"it unpacks to more than {MOST_IMAGE_BYTES:,} bytes")
    pixels = 1
    for found in _AXIS.finditer(header):
        if found.start() % CARD == 0:  # otherwise it is text in a comment
            pixels *= int(found[1][:12])
    if pixels > MOST_PIXELS:
        raise TooManyPixels(f"it has {pixels:,} pixels, the limit is {MOST_PIXELS:,}")
