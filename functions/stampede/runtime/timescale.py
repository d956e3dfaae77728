"""The time scale of all stored times: MJD TAI, in days.

All surveys began after the last leap second (2017-01-01), so TAI - UTC is always 37 s.
"""

TAI_MINUS_UTC = 37.0 / 86400
MJD_TAI_OF_1970 = 40587.0 + TAI_MINUS_UTC  # 1970-01-01T00:00:00 UTC
