"""One header and data unit (HDU) of a FITS file: where its parts are, and values of its cards."""

from functools import lru_cache
from math import prod
from struct import Struct
from typing import NamedTuple

import numpy as np

from stampede.errors import StampedeError
from stampede.runtime.decompression import Bytes

BLOCK, CARD = 2880, 80
MOST_HEADER = 100 * BLOCK
"""Longest header to read, in bytes: 3,600 cards. Those of cutouts have one or two blocks."""

_TYPES = {"8": ">u1", "16": ">i2", "32": ">i4", "64": ">i8", "-32": ">f4", "-64": ">f8"}
_DTYPES: dict[str | None, np.dtype] = {bits: np.dtype(name) for bits, name in _TYPES.items()}
_CARDS = Struct("8s s 71s")  # keyword, what is an equals sign if there is a value, the value


class BadImage(StampedeError):
    """The bytes of a cutout are not an image that can be shown."""

    name, status = "bad-image", 422


class Hdu(NamedTuple):
    """One header and data unit.

    Attributes
    ----------
    header
        What follows the ``=`` of a card, by keyword with its blanks, of each keyword the first. It
        is read when it is asked for: of the 23 cards of a cutout 7 matter.
    shape
        In numpy's order: the last FITS axis first.
    dtype
        Type of the pixels in the file.
    start, data, stop
        Offsets of its parts in the file.
    """

    header: dict[bytes, bytes]
    shape: tuple[int, ...]
    dtype: np.dtype
    start: int
    data: int
    stop: int

    @property
    def is_image(self) -> bool:
        """Whether this is a two-dimensional image with pixels; further axes may have one pixel."""
        if _text(self.header, b"XTENSION") not in (None, "IMAGE") or len(self.shape) < 2:
            return False
        return min(self.shape) > 0 and prod(self.shape[:-2]) == 1

    @property
    def plane(self) -> tuple[int, ...]:
        """Rows and columns of an image."""
        return self.shape[-2:]

    def text(self, key: bytes) -> str:
        """Value of a card as text, without quotes; empty if the header does not have it."""
        return _text(self.header, key) or ""

    def number(self, key: bytes, default: float) -> float:
        """Value of a numeric card. Raises `BadImage` if it is not a number."""
        value = _text(self.header, key)
        try:
            return default if value is None else float(value.replace("D", "E"))
        except ValueError:
            raise BadImage(f"FITS card {key.decode()} is not a number: {value!r}") from None


def hdu_at(fits: Bytes, start: int) -> Hdu:
    """The HDU at `start`.

    Raises `BadImage` if there is none, it is cut short, or its header is longer than `MOST_HEADER`.
    """
    header: dict[bytes, bytes] = {}
    most = min(MOST_HEADER, len(fits) - start)
    cards = _CARDS.iter_unpack(fits[start : start + most // CARD * CARD])
    for number, (key, equals, value) in enumerate(cards):
        if key == b"END     ":
            data = start + (number * CARD // BLOCK + 1) * BLOCK
            break
        if equals == b"=":
            header.setdefault(key, value)
    else:
        raise BadImage("the FITS header does not end")
    first = (b"XTENSION",) if start else (b"SIMPLE  ", b"XTENSION")
    if not header or next(iter(header)) not in first:
        raise BadImage("the bytes are no HDU of a FITS file")
    hdu = Hdu(header, _shape(header), _dtype(header), start, data, data)
    groups, parameters = _natural(header, b"GCOUNT", 1), _natural(header, b"PCOUNT", 0)
    if hdu.is_image and (groups, parameters) != (1, 0):
        raise BadImage(f"FITS GCOUNT is {groups} and PCOUNT {parameters}, of an image 1 and 0")
    cells = parameters + (prod(hdu.shape) if hdu.shape else 0)
    stop = data + groups * cells * hdu.dtype.itemsize
    if stop > len(fits):  # 999 axes make a number that Python refuses to write
        end = f"at byte {stop}" if stop < 1 << 63 else "beyond any file"
        raise BadImage(f"the FITS file ends at byte {len(fits)}, its data {end}")
    return hdu._replace(stop=stop)


def _shape(header: dict[bytes, bytes]) -> tuple[int, ...]:
    axes = _natural(header, b"NAXIS")
    if axes > 999:
        raise BadImage(f"FITS NAXIS is {axes}")
    return tuple(_natural(header, b"NAXIS%d" % axis) for axis in range(axes, 0, -1))


def _dtype(header: dict[bytes, bytes]) -> np.dtype:
    bitpix = _text(header, b"BITPIX")
    if bitpix not in _DTYPES:
        raise BadImage(f"FITS BITPIX is {bitpix!r}")
    return _DTYPES[bitpix]


def _natural(header: dict[bytes, bytes], key: bytes, default: int | None = None) -> int:
    """Value of a card that is a count. Raises `BadImage` if it is not."""
    value = _text(header, key)
    if value is None and default is not None:
        return default
    if value is None or not (value.isascii() and value.isdigit() and len(value) < 10):
        raise BadImage(f"FITS card {key.decode()} is not a count: {value!r}")
    return int(value)


def _text(header: dict[bytes, bytes], key: bytes) -> str | None:
    """Value of a card without quotes; None if the header does not have it."""
    card = header.get(key.ljust(8))
    return None if card is None else _value(card)


@lru_cache(maxsize=256)
def _value(card: bytes) -> str:
    """The value of a card. Those that are asked for are the same in most files of a survey."""
    value = card.decode("latin-1").strip()
    if value.startswith("'"):
        return value[1:].partition("'")[0].rstrip()
    return value.partition("/")[0].strip()
