"""HEALPix cells in the nested scheme (Gorski et al. 2005, ApJ 622, 759), by CDS' library.

A cell of order n is one of 12 4^n. In the nested scheme cell c has the cells 4c to 4c + 3 of the
next order, so cells that lie together have numbers that lie together.

The library takes astropy's angles, whose import takes half a second of CPU. So it is imported when
the first cell is asked for, or by `load`.
"""

import numpy as np

WIDEST = 58.7
"""Degrees: no point of a cell of order n is farther from the cell's centre than WIDEST / 2^n."""


def load() -> None:
    """Import the library now, in a process that will need it before it has an alert to store."""
    import cdshealpix.nested  # noqa: F401


def cells_of(ra: np.ndarray, dec: np.ndarray, order: int) -> np.ndarray:
    """The cell of each position in degrees: int64, the shape of `ra`."""
    from astropy.coordinates import Latitude, Longitude
    from cdshealpix.nested import lonlat_to_healpix

    cells = lonlat_to_healpix(Longitude(ra, "deg"), Latitude(dec, "deg"), order)
    return np.asarray(cells).astype(np.int64)


def centres_of(cells: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Right ascensions and declinations of cells' centres in degrees, the shape of `cells`."""
    from cdshealpix.nested import healpix_to_lonlat

    ra, dec = healpix_to_lonlat(cells, order)
    return ra.deg, dec.deg


def cells_near(ra: float, dec: float, radius: float, order: int) -> np.ndarray:
    """Cells with every position within `radius` degrees of one, and some others: int64, (n,)."""
    from astropy.coordinates import Angle, Latitude, Longitude
    from cdshealpix.nested import cone_search

    centre = Longitude(ra, "deg"), Latitude(dec, "deg")
    cells, _, _ = cone_search(*centre, Angle(radius, "deg"), order, flat=True)
    return np.asarray(cells).astype(np.int64)


def with_neighbours(cells: np.ndarray, order: int) -> np.ndarray:
    """Cells of shape (n,), each with its neighbours: int64, (n, 9); -1 where there is none."""
    from cdshealpix.nested import neighbours

    return np.asarray(neighbours(cells, order)).astype(np.int64)
