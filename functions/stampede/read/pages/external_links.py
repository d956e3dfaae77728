"""Pages of other services about an object and its position. The reader's browser opens them."""

from urllib.parse import quote

import pyarrow as pa

from stampede.alerts import surveys
from stampede.read.pages.page import position_of


def links(object_id: str, survey: str, detections: pa.Table) -> dict[str, str]:
    """Pages of other services about an object and its last position, by their names."""
    name = quote(object_id, safe="")
    known = surveys.named(survey).OBJECT_PAGES if survey in surveys.names() else {}
    links = {site: address.format(name) for site, address in known.items()}
    position = position_of(detections)
    return links if position is None else links | links_of_position(*position)


def links_of_position(ra: float, dec: float) -> dict[str, str]:
    """Pages of other services about a position (ICRS degrees), by their names."""
    right, up, signed = f"{ra:.6f}", f"{dec:.6f}", quote(f"{dec:+.6f}")
    return {
        "SIMBAD": "https://simbad.cds.unistra.fr/simbad/sim-coo"
        f"?Coord={right}d%20{signed}d&Radius=5&Radius.unit=arcsec",
        "NED": "https://ned.ipac.caltech.edu/conesearch?search_type=Near%20Position%20Search"
        f"&coordinates={right}d%20{signed}d&radius=0.1&in_csys=Equatorial&in_equinox=J2000.0",
        "TNS": f"https://www.wis-tns.org/search?ra={right}&decl={up}&radius=5&coords_unit=arcsec",
        "Legacy Survey": "https://www.legacysurvey.org/viewer"
        f"?ra={right}&dec={up}&layer=ls-dr10&zoom=16&mark={right},{up}",
    }
