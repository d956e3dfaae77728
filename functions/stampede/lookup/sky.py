"""Positions on the sky: how a query writes them, their distance, and the cells around them."""

import re
from typing import NamedTuple

import numpy as np

from stampede.alerts import healpix
from stampede.alerts.positions import CELLS, ORDER
from stampede.lookup.errors import BadParameter
from stampede.store.tables.range_lookup import Ranges

ARCSEC = 3600.0
"""Arcseconds of a degree."""
FULL = 180.0
"""Degrees of the radius of the whole sky."""
_NUMBER = r"[0-9]+\.?[0-9]*|\.[0-9]+"
_DEGREES = re.compile(rf"[+-]?(?:{_NUMBER})(?:[eE][+-]?[0-9]+)?")
_SEXAGESIMAL = re.compile(
    rf"(?P<sign>[+-]?)(?P<whole>[0-9]+)(?P<unit>[hd:°\s])\s*(?P<minutes>[0-9]+)[m:'′\s]\s*"
    rf"(?P<seconds>{_NUMBER})\s*(?:s|''|\"|″)?"
)
_RADIUS = re.compile(
    rf"(?P<number>(?:{_NUMBER})(?:[eE][+-]?[0-9]+)?)\s*(?P<unit>arcsec|arcmin|deg|[\"″'′°dms]|)"
)
_UNITS = dict.fromkeys(("", "arcsec", '"', "″", "s"), 1 / ARCSEC)
_UNITS |= dict.fromkeys(("arcmin", "'", "′", "m"), 1 / 60) | dict.fromkeys(("deg", "°", "d"), 1.0)
# A cover of a disk has about this many cells between its centre and its edge: at most 700 ranges.
_CELLS_OF_RADIUS = 16
# A larger disk is looked for among the cells of the whole sky, which are few more.
_LARGE = 80.0


class Place(NamedTuple):
    """A position in ICRS degrees."""

    ra: float
    dec: float


class Places(NamedTuple):
    """Many positions in ICRS degrees: arrays of one shape."""

    ra: np.ndarray
    dec: np.ndarray


def place(ra: str, dec: str) -> Place:
    """A position as a query writes it: degrees, or ``00:03:15.4``, ``0h3m15.4s``, ``+16:08:44``.

    Sexagesimal right ascension is in hours, unless its unit is ``d``. Raises `BadParameter`.
    """
    hours = "h" in ra or not ("d" in ra or "°" in ra)
    alpha = _angle("ra", ra, 15.0 if hours else 1.0, "a right ascension from 0 to 360")
    delta = _angle("dec", dec, 1.0, "a declination from -90 to 90")
    if not 0 <= alpha <= 360:
        raise BadParameter("ra", f"must be a right ascension from 0 to 360 degrees: {ra[:40]!r}")
    if not -90 <= delta <= 90 or "h" in dec:
        raise BadParameter("dec", f"must be a declination from -90 to 90 degrees: {dec[:40]!r}")
    return Place(alpha % 360, delta)


def _angle(name: str, text: str, unit: float, what: str) -> float:
    text = text.strip()
    if _DEGREES.fullmatch(text):
        return float(text)
    found = _SEXAGESIMAL.fullmatch(text)
    if not found or len(text) > 40:
        raise BadParameter(name, f"must be {what}, in degrees or as 12:34:56.7: {text[:40]!r}")
    minutes, seconds = float(found["minutes"]), float(found["seconds"])
    if minutes >= 60 or seconds >= 60:
        raise BadParameter(name, f"has 60 or more minutes or seconds: {text[:40]!r}")
    value = unit * (float(found["whole"]) + minutes / 60 + seconds / ARCSEC)
    return -value if found["sign"] == "-" else value


def radius(text: str) -> float:
    """A radius in degrees: ``5``, ``5arcsec`` and ``5"`` are arcseconds; ``arcmin``, ``deg``.

    Raises `BadParameter`.
    """
    found = _RADIUS.fullmatch(text.strip())
    value = float(found["number"]) * _UNITS[found["unit"]] if found else -1.0
    if not 0 <= value <= FULL:
        units = "a number from 0 to 180 degrees, in arcsec or with arcsec, arcmin or deg"
        raise BadParameter("radius", f"must be {units}: {text[:40]!r}")
    return value


def separation(centre: Place | Places, ra: np.ndarray, dec: np.ndarray) -> np.ndarray:
    """Degrees between a position, or each of many, and others.

    By Vincenty's formula, which is exact at all distances.
    """
    east = np.radians(ra - centre.ra)
    there, here = np.radians(dec), np.radians(centre.dec)
    across = np.cos(there) * np.sin(east)
    along = np.cos(here) * np.sin(there) - np.sin(here) * np.cos(there) * np.cos(east)
    towards = np.sin(here) * np.sin(there) + np.cos(here) * np.cos(there) * np.cos(east)
    degrees: np.ndarray = np.degrees(np.arctan2(np.hypot(across, along), towards))
    return degrees


def cells_around(centre: Place, inner: float, outer: float) -> Ranges:
    """Ranges of cells of order `ORDER` with every position from `inner` to `outer` degrees away.

    There are cells beyond both, for a cover of larger cells has fewer ranges.
    """
    if outer >= _LARGE:
        order, cells = 6, np.arange(CELLS >> 2 * (ORDER - 6))
    else:
        order = _order(max(outer / _CELLS_OF_RADIUS, 1e-9))
        cells = healpix.cells_near(*centre, max(outer, 1e-7), order)
    if inner or outer >= _LARGE:
        away = separation(centre, *healpix.centres_of(cells, order))
        size = healpix.WIDEST / (1 << order)
        cells = cells[(away >= inner - size) & (away <= outer + size)]
    return ranges_of(np.sort(cells), order)


def cells_around_each(
    ra: np.ndarray, dec: np.ndarray, radius: float
) -> tuple[int, np.ndarray, np.ndarray]:
    """Cells with every position within `radius` degrees of each of many positions.

    They are a cell and its neighbours, of at least four times the radius: no cell is so distorted
    that its neighbours begin nearer.

    Returns
    -------
    The order of the cells; then for each pair of a position and a cell the number of the position
    and the cell, arrays of one shape.
    """
    order = _order(4 * radius)
    cells = healpix.with_neighbours(healpix.cells_of(ra, dec, order), order).ravel()
    there = cells >= 0  # some have seven neighbours
    return order, np.repeat(np.arange(len(ra)), 9)[there], cells[there]


def ranges_of(cells: np.ndarray, order: int) -> Ranges:
    """Ranges of cells of order `ORDER` in these cells of another order, ascending, distinct."""
    first = np.append(True, np.diff(cells) > 1) if len(cells) else np.empty(0, bool)
    last = np.append(first[1:], True) if len(cells) else first
    shift = 2 * (ORDER - order)
    return Ranges(cells[first] << shift, (cells[last] + 1) << shift)


def _order(width: float) -> int:
    """The order of cells of about so many degrees: sqrt(pi / 3) radians / 2^order wide."""
    return int(np.clip(np.floor(np.log2(58.6 / width)), 0, ORDER))
