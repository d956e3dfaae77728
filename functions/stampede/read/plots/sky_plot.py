"""A map of the objects around a position, as an SVG image that needs no script."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from stampede.lookup.sky import ARCSEC, Place, separation
from stampede.runtime.counts import counted

SIZE, RADIUS = 260, 100
"""Units of the picture: its side, and the radius of the cone."""


class SkyObject(NamedTuple):
    """An object on the map: where it is (ICRS degrees), its distance from the centre in arcsec."""

    name: str
    ra: float
    dec: float
    distance: float
    href: str


def sky_path_svg(
    ra: np.ndarray, dec: np.ndarray, names: Sequence[str], hrefs: Sequence[str]
) -> str:
    """A map of the places where one body was seen; empty if it has fewer than two.

    Parameters
    ----------
    ra, dec
        ICRS degrees, shape (places,), by time; NaN where a place is not known.
    names, hrefs
        Of each place: when the body was there, and a page about it.
    """
    known = np.flatnonzero(np.isfinite(ra) & np.isfinite(dec))
    if len(known) < 2:
        return ""
    alpha, delta = np.radians([ra[known], dec[known]])
    towards = [np.cos(delta) * np.cos(alpha), np.cos(delta) * np.sin(alpha), np.sin(delta)]
    x, y, z = (float(each.mean()) for each in towards)
    middle = Place(
        float(np.degrees(np.arctan2(y, x))) % 360, float(np.degrees(np.arctan2(z, np.hypot(x, y))))
    )
    away = separation(middle, ra[known], dec[known]) * ARCSEC
    places = [
        SkyObject(names[number], float(ra[number]), float(dec[number]), far, hrefs[number])
        for number, far in zip(known.tolist(), away.tolist(), strict=True)
    ]
    return sky_plot_svg(*middle, max(1.0, float(away.max())), places, "place")


def sky_plot_svg(
    ra: float, dec: float, radius: float, objects: Sequence[SkyObject], what: str = "object"
) -> str:
    """The map, ``<svg>…</svg>``: north is up, east is left, the distance is true (equidistant).

    Parameters
    ----------
    ra, dec
        The centre, ICRS degrees.
    radius
        Of the cone, in arcsec.
    what
        What lies on the map, as one.
    """
    middle = SIZE / 2
    marks = []
    for one in objects:
        angle = position_angle(ra, dec, one.ra, one.dec)
        away = RADIUS * min(one.distance / radius, 1.0) if radius else 0.0
        x, y = middle - away * np.sin(angle), middle - away * np.cos(angle)
        title = f"{escape(one.name)}, {_angle(one.distance, '.2f')} from the centre"
        marks.append(
            f'<a href="{escape(one.href)}" aria-label="{title}"><circle cx="{x:.1f}" cy="{y:.1f}" '
            f'r="4.5"><title>{title}</title></circle></a>'
        )
    label = f"{counted(objects, what)} within {_angle(radius)}, north up, east left"
    left, right = middle - RADIUS, middle + RADIUS  # of a square around the cone
    return (
        f'<svg class="skyplot" viewBox="0 0 {SIZE} {SIZE}" role="group" aria-label="{label}">'
        f'<circle class="edge" cx="{middle:g}" cy="{middle:g}" r="{RADIUS}"/>'
        f'<circle class="grid" cx="{middle:g}" cy="{middle:g}" r="{RADIUS / 2:g}"/>'
        f'<path class="centre" d="M{middle - 6:g} {middle:g}h12M{middle:g} {middle - 6:g}v12"/>'
        f'<text class="tick" x="{middle:g}" y="{left - 8:g}" text-anchor="middle">N</text>'
        f'<text class="tick" x="{left - 8:g}" y="{middle + 4:g}" text-anchor="end">E</text>'
        f'<text class="tick" x="{right:g}" y="{right + 20:g}" text-anchor="end">'
        f"{_angle(radius)}</text>{''.join(marks)}</svg>"
    )


def _angle(arcsec: float, form: str = ".4g") -> str:
    """An angle with its unit: arcseconds up to ten arcminutes, then degrees."""
    return f"{arcsec:{form}}″" if arcsec <= 600 else f"{arcsec / ARCSEC:.3g}°"


def position_angle(ra: float, dec: float, to_ra: float, to_dec: float) -> float:
    """The direction from one position to another, from north over east, in radians.

    All positions are in degrees (ICRS). Meeus, Astronomical Algorithms, chapter 48.
    """
    alpha, delta, delta0 = np.radians([to_ra - ra, to_dec, dec])
    east = np.sin(alpha) * np.cos(delta)
    north = np.cos(delta0) * np.sin(delta) - np.sin(delta0) * np.cos(delta) * np.cos(alpha)
    return float(np.arctan2(east, north))
