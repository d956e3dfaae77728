"""Which fields hold the flux or the magnitude of a new survey's points, and in which unit."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

MAGNITUDES = (
    *(("magpsf", "sigmapsf"), ("mag", "dmag"), ("mag", "magerr"), ("psfmag", "psfmagerr")),
    *(("mag", "sigmamag"), ("magap", "sigmagap")),
)
FLUXES = (
    *(("psfflux", "psffluxerr"), ("psflux", "psfluxerr"), ("fluxpsf", "sigmafluxpsf")),
    *(("flux", "dflux"), ("flux", "fluxerr"), ("forcediffimflux", "forcediffimfluxunc")),
)
OTHER_MAGNITUDES = ("forcediffimmag",)
SIGN = "isdiffpos"
UNITS = {"njy": 1.0, "ujy": 1e3, "µjy": 1e3, "mujy": 1e3, "mjy": 1e6, "jy": 1e9}
"""Nanojansky of each unit."""
CLOSE = 0.03  # by how much a flux may differ from its rounded magnitude


class Brightness(NamedTuple):
    """What a point's brightness is made of.

    Attributes
    ----------
    is_magnitude
        Whether `value` and `error` are AB magnitudes; otherwise they are fluxes.
    factor
        Nanojansky of one unit of flux.
    sign
        The field that says whether the flux is positive; empty if the flux has its sign.
    """

    is_magnitude: bool
    value: str
    error: str
    factor: float
    sign: str


def guess_brightness(
    docs: Mapping[str, str], rows: Iterable[Mapping[str, Any]], doubts: list[str]
) -> Brightness:
    """The fields of the brightness: a flux if its unit is known, else a magnitude.

    Parameters
    ----------
    docs
        What the schema says of each field.
    rows
        Measurements.
    doubts
        To this list is added what somebody must look up.
    """
    rows = list(rows)
    plain = {re.sub(r"[\W_]", "", name.lower()): name for name in docs}
    magnitude = _pair(plain, MAGNITUDES)
    sign = plain.get(SIGN, "")
    known = [
        plain[name] for name in (*(m for m, _ in MAGNITUDES), *OTHER_MAGNITUDES) if name in plain
    ]
    pairs = [_pair(plain, [names]) for names in FLUXES]
    for value, error in sorted(pairs, key=lambda pair: not pair[1]):  # first those with an error
        if value and (factor := _unit(docs[value]) or _factor(value, known, rows)):
            return Brightness(False, value, error, factor, _flux_sign(value, sign, rows))
    if magnitude[0]:
        doubts.append(f"whether `{magnitude[0]}` is an AB magnitude: AB is assumed, not Vega")
        if not sign:
            doubts.append("whether a point may be negative: no field says so")
        return Brightness(True, *magnitude, 1.0, sign)
    value, error = _pair(plain, FLUXES)
    doubts.append(
        f"the unit of `{value}`: nothing says it, and nJy is assumed"
        if value
        else "the flux: no field has the name of a flux or of a magnitude"
    )
    return Brightness(False, value, error, 1.0, "")


def _pair(plain: Mapping[str, str], names: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """The first value that there is with its error, which may be empty."""
    found = [(plain[value], plain.get(error, "")) for value, error in names if value in plain]
    return next((each for each in found if each[1]), found[0] if found else ("", ""))


def _unit(doc: str) -> float:
    """Nanojansky of the unit that the documentation names; 0 if none."""
    found = re.search(r"\b(n|u|µ|mu|m)?jy\b", doc.lower())
    return UNITS[found[0]] if found else 0.0


def _factor(value: str, magnitudes: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> float:
    """Nanojansky of one unit of flux, where AB magnitudes beside it prove one; else 0."""
    ratios = [
        10 ** ((31.4 - row[name]) / 2.5) / abs(row[value])
        for row in rows
        for name in magnitudes
        if row.get(name) and row.get(value)
    ]
    for factor in (1.0, 1e3, 1e6):
        if ratios and all(math.isclose(each, factor, rel_tol=CLOSE) for each in ratios):
            return factor
    return 0.0


def _flux_sign(value: str, sign: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The field of the sign, where negative points have a positive flux; else empty."""
    negative = [row for row in rows if row.get(sign) in ("f", "0", False, 0)]
    unsigned = negative and all((row.get(value) or 0) >= 0 for row in rows)
    return sign if sign and unsigned else ""
