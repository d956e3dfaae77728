"""The one time scale: MJD in TAI, as days.

Both surveys began after the last leap second (2017-01-01), so TAI - UTC is 37 s throughout.
"""

TAI_MINUS_UTC = 37.0 / 86400
MJD_TAI_OF_1970 = 40587.0 + TAI_MINUS_UTC  # 1970-01-01T00:00:00 UTC
