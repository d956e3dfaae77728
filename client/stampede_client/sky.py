"""Positions and radii as the server takes them, and its objects as an astropy Table."""

from typing import TypeAlias

import pyarrow as pa
from astropy import units
from astropy.coordinates import SkyCoord
from astropy.table import Table
from astropy.units import Quantity, Unit

from stampede_client.errors import BadInput

Position: TypeAlias = str | SkyCoord
Radius: TypeAlias = float | Quantity


def cone_query(position: Position, radius: Radius) -> dict[str, str]:
    """The parameters ra, dec (ICRS degrees) and radius (arcsec) of a cone. Raises `BadInput`."""
    place = position if isinstance(position, SkyCoord) else _parsed(position)
    if not place.isscalar:
        raise BadInput("a cone has one position; call once for each position")
    try:
        arcsec = float(Quantity(radius, units.arcsec).value)
    except (TypeError, ValueError, units.UnitConversionError):
        arcsec = float("nan")
    if not 0 <= arcsec <= 180 * 3600:
        raise BadInput(f"{radius!r} is no radius; give arcsec or an angle, up to 180 degrees")
    icrs = place.icrs
    return {
        "ra": repr(float(icrs.ra.deg)),
        "dec": repr(float(icrs.dec.deg)),
        "radius": repr(arcsec),
    }


def table_of(rows: pa.Table) -> Table:
    """An astropy Table of the server's rows, with units."""
    table = Table()
    for field in rows.schema:
        unit = (field.metadata or {}).get(b"unit", b"").decode()
        values = rows[field.name]
        if pa.types.is_string(field.type):
            table[field.name] = [str(value) for value in values.to_pylist()]
        else:
            table[field.name] = values.to_numpy()
        table[field.name].unit = Unit(unit) if unit else None
    return table


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
