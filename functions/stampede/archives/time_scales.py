"""Times of archives as MJD TAI.

`runtime.timescale` is for alerts: all of them are younger than the last leap second.
"""

import numpy as np

SCALES = ("utc", "tai", "tt", "tdb")
"""Time scales that `tai` converts."""
TT_MINUS_TAI = 32.184 / 86400
# MJD (UTC) from which TAI - UTC is 10, 11, … 37 s: 1972-01-01 to 2017-01-01 (IERS, Bulletin C).
_LEAPS = np.array(
    [
        *(41317, 41499, 41683, 42048, 42413, 42778, 43144, 43509, 43874, 44239, 44786, 45151),
        *(45516, 46247, 47161, 47892, 48257, 48804, 49169, 49534, 50083, 50630, 51179, 53736),
        *(54832, 56109, 57204, 57754),
    ]
)


def tai(mjd: np.ndarray, scale: str) -> np.ndarray:
    """Times as MJD TAI: float64, of the shape of `mjd`.

    Of UTC before 1972, which had no whole leap seconds, within 10 s. TDB is taken for TT, which it
    is within 2 ms.

    Parameters
    ----------
    mjd
        MJD in one of `SCALES`, float64.
    """
    if scale == "tai":
        return mjd
    if scale in ("tt", "tdb"):
        found: np.ndarray = mjd - TT_MINUS_TAI
        return found
    leaps = np.maximum(_LEAPS.searchsorted(mjd, "right"), 1)
    found = mjd + (9 + leaps) / 86400
    return found
