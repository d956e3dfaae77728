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
    if position is None:
        return links
    ra, dec = (f"{value:.6f}" for value in position)
    signed = quote(f"{position[1]:+.6f}")
    return links | {
        "SIMBAD": "https://simbad.cds.unistra.fr/simbad/sim-coo"
        f"?Coord={ra}d%20{signed}d&Radius=5&Radius.unit=arcsec",
        "NED": "https://ned.ipac.caltech.edu/conesearch?search_type=Near%20Position%20Search"
        f"&coordinates={ra}d%20{signed}d&radius=0.1&in_csys=Equatorial&in_equinox=J2000.0",
        "TNS": f"https://www.wis-tns.org/search?ra={ra}&decl={dec}&radius=5&coords_unit=arcsec",
        "Legacy Survey": "https://www.legacysurvey.org/viewer"
        f"?ra={ra}&dec={dec}&layer=ls-dr10&zoom=16&mark={ra},{dec}",
    }
