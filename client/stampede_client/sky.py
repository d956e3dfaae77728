"""Positions and radii as the server takes them, and its objects as an astropy Table."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from astropy import units
from astropy.coordinates import SkyCoord
from astropy.table import Table
from astropy.time import Time
from astropy.units import Quantity, Unit

from stampede_client.errors import BadInput

Angle: TypeAlias = float | Quantity | Sequence[float] | np.ndarray
"""One or several; degrees without a unit."""
Position: TypeAlias = str | SkyCoord | tuple[Angle, Angle] | Angle
Radius: TypeAlias = float | Quantity
HOW = "give cone(ra, dec, radius=5), cone(position, radius=5): degrees, text or a SkyCoord; arcsec"


class Cone(NamedTuple):
    """Around what to look: a position, or a one-dimensional array of them; `radius` in arcsec."""

    place: SkyCoord
    radius: float

    @property
    def degrees(self) -> np.ndarray:
        """ICRS, shape (n, 2): right ascension and declination of each position."""
        icrs = self.place.icrs
        return np.stack([np.atleast_1d(icrs.ra.deg), np.atleast_1d(icrs.dec.deg)], axis=1)


def cone_of(position: Position, more: Sequence[Any], radius: Radius | None) -> Cone:
    """What the arguments of a cone mean: ``position`` or ``ra, dec``, then the radius.

    Raises `BadInput`.
    """
    given = [position, *more]
    if not isinstance(position, str | SkyCoord | tuple):
        given[:2] = [tuple(given[:2])]
    if radius is not None:
        given.append(radius)
    if len(given) != 2:
        what = "a radius is missing" if len(given) < 2 else "too many arguments"
        raise BadInput(f"{what}: {HOW}")
    place = _place(given[0])
    if not place.isscalar and (place.ndim != 1 or not len(place)):
        raise BadInput(f"positions of shape {place.shape}: give one or a list of them")
    return Cone(place, _arcsec(given[1]))


def _place(position: Any) -> SkyCoord:
    if isinstance(position, SkyCoord):
        return position
    if isinstance(position, str):
        return _parsed(position)
    try:
        ra, dec = position
        return SkyCoord(_degrees(ra), _degrees(dec))
    except (ValueError, TypeError, units.UnitsError) as error:
        raise BadInput(f"{position!r:.60} is no position ({error}); {HOW}") from None


def _degrees(angle: Any) -> Quantity:
    if isinstance(angle, str):
        raise TypeError("text stands alone: '00:03:15.4 +16:08:44'")
    return Quantity(angle, units.deg)


def _arcsec(radius: Any) -> float:
    try:
        arcsec = float(Quantity(radius, units.arcsec).value)
    except (TypeError, ValueError, units.UnitConversionError):
        arcsec = float("nan")
    if not 0 <= arcsec <= 180 * 3600:
        raise BadInput(f"{radius!r} is no radius; give arcsec or an angle, up to 180 degrees")
    return arcsec


def table_of(rows: pa.Table) -> Table:
    """An astropy Table of the server's rows, with units; an MJD is a `Time`. Nulls are masked."""
    table = Table()
    for field in rows.schema:
        unit = (field.metadata or {}).get(b"unit", b"").decode()
        values = rows[field.name]
        if pa.types.is_string(field.type):
            table[field.name] = _texts(values)
        elif field.name.endswith("mjd"):
            table[field.name] = Time(_masked(values), format="mjd", scale="tai")
            continue
        else:
            table[field.name] = _masked(values)
        table[field.name].unit = Unit(unit) if unit else None
    return table


def _texts(values: pa.ChunkedArray) -> np.ndarray:
    """An array of texts, masked if any is null."""
    texts = np.array(values.fill_null("").to_pylist(), dtype=str)
    return np.ma.MaskedArray(texts, values.is_null().to_numpy()) if values.null_count else texts


def _masked(values: pa.ChunkedArray) -> Any:
    """An array of numbers, masked if any is null; below the mask a float is NaN."""
    if not values.null_count:
        return values.to_numpy()
    filled = pc.fill_null(values, np.nan if pa.types.is_floating(values.type) else 0).to_numpy()
    return np.ma.MaskedArray(filled, values.is_null().to_numpy())


def _parsed(text: str) -> SkyCoord:
    hours = any(mark in text for mark in ":h")
    words = text.replace(",", " ").split()
    try:
        if hours or len(words) > 2:
            return SkyCoord(text, unit=(units.hourangle, units.deg))
        return SkyCoord(text.replace(",", " "), unit=units.deg)
    except (ValueError, TypeError, units.UnitsError):
        raise BadInput(
            f"{text!r:.60} is no position; give '00:03:15.4 +16:08:44', degrees or a SkyCoord"
        ) from None
