"""Numbers as people read them: as many digits as count, and commas between thousands."""

from math import floor, isfinite, log10

MOST_DIGITS = 6
"""Digits after the point of a flux in µJy."""
MAG_DIGITS = 2, 3
"""Fewest and most digits after the point of a magnitude."""


def number(value: float, digits: int) -> str:
    """A number with so many digits after the point and a typographic minus sign: ``−2,098.12``."""
    # The sum makes 0 of -0.
    return f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", "−")


def measured(value: float, error: float, is_mag: bool) -> tuple[str, str]:
    """A value and its error (1 sigma), with the digits that make two of the error count.

    Without an error three digits of the value count, and the error's text is empty. Both are empty
    if the value is not finite.
    """
    if not isfinite(value):
        return "", ""
    has_error = isfinite(error) and error > 0
    digits = _digits(error, 2) if has_error else _digits(value, 3)
    if is_mag:
        digits = min(max(digits, MAG_DIGITS[0]), MAG_DIGITS[1])
    return number(value, digits), number(error, digits) if has_error else ""


def _digits(value: float, wanted: int) -> int:
    """Digits after the point with which `wanted` digits of a value count."""
    if not value:
        return wanted
    return min(max(wanted - 1 - floor(log10(abs(value))), 0), MOST_DIGITS)
