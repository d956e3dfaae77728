"""Times in other scales, as astropy converts them."""

import erfa
import numpy as np
import pytest
from astropy.time import Time

from stampede.archives import time_scales
from stampede.archives.time_scales import SCALES, tai


@pytest.mark.parametrize("scale", SCALES)
def test_times_are_those_of_astropy(scale: str) -> None:
    # Not in a day with a leap second, of which astropy makes each second longer.
    mjd = np.array([41317.0, 41497.9, 41499.0, 50081.99, 50083.0, 57752.99, 57754.0, 61000.5])
    expected = Time(mjd, format="mjd", scale=scale).tai.mjd
    # Days: TDB is TT within 2 ms, and a double has a few microseconds.
    assert np.abs(tai(mjd, scale) - expected).max() < (3e-8 if scale == "tdb" else 1e-10)


def test_before_leap_seconds_utc_is_within_ten_seconds() -> None:
    assert tai(np.array([40000.0]), "utc") == pytest.approx(40000 + 10 / 86400)


def test_no_leap_second_is_missing() -> None:
    steps = erfa.leap_seconds.get()
    whole = steps[steps["tai_utc"] >= 10]
    jd = [erfa.cal2jd(row["year"], row["month"], 1)[1] for row in whole]
    assert time_scales._LEAPS.tolist() == [round(day) for day in jd]
