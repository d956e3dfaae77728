"""Round values and dates for the axes of a plot."""

import re
from datetime import UTC, datetime, timedelta
from math import ceil, floor, log10

MJD_EPOCH = datetime(1858, 11, 17, tzinfo=UTC)
FIRST, LAST = -678575.0, 2973483.0
"""MJD of the years 1 and 9999: the calendar of Python's dates has no others."""
LAST_YEAR = 9999
_NIGHT = re.compile("-?[0-9]{1,7}")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def nice_ticks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """At most `most` + 1 values in [low, high], with their text; steps of 1, 2 or 5 times 10^n."""
    rough = (high - low) / most
    power = 10.0 ** floor(log10(rough))
    step = next(power * f for f in (1, 2, 5, 10) if power * f >= rough * 0.999999)
    digits = max(0, -floor(log10(step) + 1e-9))
    values = [round(i * step, digits + 1) for i in range(ceil(low / step), floor(high / step) + 1)]
    return [(value, f"{value:,.{digits}f}".replace("-", "−")) for value in values]


def date_ticks(low: float, high: float, most: int = 8) -> list[tuple[float, str]]:
    """Round days, months or years in the MJD interval [low, high], with their text.

    None before year 1 and after year 9999.
    """
    low, high = max(low, FIRST), min(high, LAST)
    if not low < high:
        return []
    if high - low < 32 * most / 4:
        step = next((s for s in (1, 2, 5, 10) if (high - low) / s <= most), 20)
        days = range(ceil(low), floor(high) + 1)
        return [(day, _text(day, "day")) for day in days if day % step == 0]
    months = (high - low) / 30.44
    step = next((s for s in (1, 2, 3, 6, 12, 24, 60) if months / s <= most), 120)
    first = MJD_EPOCH + timedelta(days=low)
    ticks = []
    for month in range(first.year * 12, first.year * 12 + ceil(months) + 24):
        if month // 12 > LAST_YEAR:
            break
        at = (datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC) - MJD_EPOCH).days
        if month % step == 0 and low <= at <= high:
            ticks.append((float(at), _text(at, "year" if step >= 12 else "month")))
    return ticks


def date_of(mjd: float) -> str:
    """The calendar day of an MJD, for example ``3 Sep 2021``; empty if no date has that number."""
    return _text(mjd, "day") if FIRST <= mjd <= LAST else ""


def time_of(mjd: float) -> str:
    """The time of day of an MJD, in its own scale: ``10:27:29``."""
    seconds = floor(mjd % 1 * 86_400)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def day_of(night: int) -> str:
    """The ISO date of an integer MJD, as addresses hold it; the number itself if it has no date."""
    date = MJD_EPOCH + timedelta(days=night) if FIRST <= night <= LAST else None
    return date.date().isoformat() if date else str(night)


def night_of_day(text: str) -> int | None:
    """The integer MJD of an ISO date, or in digits; None if it is neither."""
    if _NIGHT.fullmatch(text):
        return int(text)
    try:
        return (datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC) - MJD_EPOCH).days
    except ValueError:
        return None


def _text(mjd: float, unit: str) -> str:
    date = MJD_EPOCH + timedelta(days=mjd)
    if unit == "year":
        return f"{date.year}"
    month_and_year = f"{MONTHS[date.month - 1]} {date.year}"
    return f"{date.day} {month_and_year}" if unit == "day" else month_and_year
