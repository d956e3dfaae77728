"""The points of a light curve: a filter for them, and their order."""

from collections.abc import Sequence
from enum import StrEnum
from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stampede.runtime import lazy_arrow_compute as pc

NO_BAND = "none"
"""Name of the band of a point that has none."""


class PointKind(StrEnum):
    """What a point of a light curve is."""

    DETECTION = "detection"
    FORCED = "forced"
    LIMIT = "limit"


class PointFilter(NamedTuple):
    """A filter for the points of a light curve.

    Attributes
    ----------
    bands
        Only these; empty for all.
    forced
        True: only forced photometry. False: everything but forced photometry.
    start, end
        MJD, both included.
    withdrawn
        Also the points that the survey has withdrawn.
    survey
        Only those of this survey or archive; None for all.
    """

    bands: Sequence[str] = ()
    forced: bool | None = None
    start: float | None = None
    end: float | None = None
    withdrawn: bool = False
    survey: str | None = None

    def apply(self, rows: pa.Table) -> pa.Table:
        """The rows that pass the filter."""
        masks = []
        if not self.withdrawn and pc.any(rows["withdrawn"]).as_py():  # of most objects none is
            masks.append(pc.invert(rows["withdrawn"]))
        if self.survey is not None:
            masks.append(pc.equal(rows["survey"], self.survey))
        if self.bands:
            masks.append(pc.is_in(rows["band"], pa.array(self.bands, pa.string())))
        if self.forced is not None:
            masks.append(pc.equal(rows["forced"], self.forced))
        if self.start is not None:
            masks.append(pc.greater_equal(rows["mjd"], self.start))
        if self.end is not None:
            masks.append(pc.less_equal(rows["mjd"], self.end))
        return rows.filter(reduce(pc.and_, masks)) if masks else rows


def kinds_of(rows: pa.Table) -> np.ndarray:
    """The `PointKind` of each row."""
    forced, limit = (rows[name].to_numpy() for name in ("forced", "limit"))
    kinds = np.where(forced, PointKind.FORCED.value, PointKind.DETECTION.value)
    return np.where(limit, PointKind.LIMIT.value, kinds)


def bands_of(rows: pa.Table) -> np.ndarray:
    """The band of each row, or `NO_BAND`."""
    return np.array([band or NO_BAND for band in rows["band"].to_pylist()], str)


def measured(rows: pa.Table) -> pa.Table:
    """The detections: neither forced photometry nor limits."""
    return rows.filter(pc.invert(pc.or_(rows["forced"], rows["limit"])))


def in_time(rows: pa.Table) -> pa.Table:
    """Points, sorted by object id already, by object id and then time.

    Those of one object are sorted by numpy, in a tenth of the time of Arrow's `sort_by`.
    """
    ids = rows["object_id"]
    if not len(ids) or ids[0] != ids[-1]:
        return rows.sort_by([("object_id", "ascending"), ("mjd", "ascending")])
    mjd = rows["mjd"].to_numpy()
    if (mjd[1:] >= mjd[:-1]).all():
        return rows
    return rows.take(pa.array(np.argsort(mjd, kind="stable")))
