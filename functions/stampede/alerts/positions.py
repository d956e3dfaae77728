"""Where objects are: rows of the table `positions` out of points of light curves."""

import numpy as np
import pyarrow as pa

from stampede.alerts.columns import POSITION
from stampede.alerts.healpix import cells_of
from stampede.runtime import lazy_arrow_compute as pc

ORDER = 16
"""Of the cells: 3.2 arcsec wide, so that the scatter of an object's detections stays in few."""
PUBLIC = 1
"""ZTF's programme for everybody."""
CELLS = 12 << 2 * ORDER
"""Number of cells of the whole sky."""


def positions_of(detections: pa.Table) -> pa.Table:
    """One row of `POSITION` per object and cell in which any of its detections lies.

    The detections of each programme that is not public have a row of their own: so they can be
    withheld, and all that is said of the others is true without them.

    Forced photometry, limits, withdrawn and moved points, and points without a position do not
    count. The order of the rows of `detections`, and how often a point is there, does not matter.

    Parameters
    ----------
    detections
        Rows of `DETECTION`.
    """
    rows = detections.filter(_located(detections))
    if not rows.num_rows:
        return POSITION.empty_table()
    ra, dec = rows["ra"].to_numpy() % 360.0, rows["dec"].to_numpy()
    mjd, sources = rows["mjd"].to_numpy(), rows["source_id"].to_numpy()
    cells, objects = cells_of(ra, dec, ORDER), object_codes(rows)
    programmes = pc.fill_null(rows["programid"], PUBLIC).to_numpy()
    order = np.lexsort((dec, ra, mjd, sources, programmes, objects, cells))
    cells, objects, sources, mjd = cells[order], objects[order], sources[order], mjd[order]
    programmes = programmes[order]
    new = np.logical_or.reduce([each[1:] != each[:-1] for each in (cells, objects, programmes)])
    new = np.append(True, new)
    starts = np.flatnonzero(new)
    distinct = new | np.append(True, sources[1:] != sources[:-1])
    latest = np.maximum.reduceat(mjd, starts)
    # Of several detections at the latest time the last one in the order above.
    group = np.cumsum(new) - 1
    at_latest = np.flatnonzero(mjd == latest[group])
    chosen = np.empty(len(starts), np.int64)
    chosen[group[at_latest]] = order[at_latest]
    taken = pa.array(chosen)
    return pa.table(
        {
            "healpix": cells[starts],
            "survey": rows["survey"].take(taken),
            "object_id": rows["object_id"].take(taken),
            "ra": ra[chosen],
            "dec": dec[chosen],
            "detections": np.add.reduceat(distinct, starts, dtype=np.int32),
            "first_mjd": np.minimum.reduceat(mjd, starts),
            "last_mjd": latest,
            "programid": pa.array(programmes[starts], mask=programmes[starts] == PUBLIC),
        },
        POSITION,
    )


def object_codes(rows: pa.Table) -> np.ndarray:
    """A number for each row, equal for rows of one object: of one survey and object id. int64."""
    ids, surveys = (
        rows[name].combine_chunks().dictionary_encode() for name in ("object_id", "survey")
    )
    codes: np.ndarray = ids.indices.to_numpy().astype(np.int64) * len(surveys.dictionary)
    codes = codes + surveys.indices.to_numpy()
    return codes


def _located(detections: pa.Table) -> pa.ChunkedArray:
    """Which points are detections with a position on the sphere."""
    unwanted = pc.or_(pc.or_(detections["forced"], detections["limit"]), detections["withdrawn"])
    unwanted = pc.or_(unwanted, pc.fill_null(detections["moved"], False))
    placed = pc.and_(pc.is_finite(detections["ra"]), pc.less_equal(pc.abs(detections["dec"]), 90.0))
    return pc.and_(pc.fill_null(placed, False), pc.invert(unwanted))
