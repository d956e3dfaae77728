"""A light curve as an SVG image that needs no script, no font and no other file.

The page's style sheet sets colours by class, for example ``band-g``, ``axis`` and ``grid``.
"""

from collections.abc import Iterator
from enum import StrEnum
from html import escape
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stampede.read.ticks import FIRST, LAST, date_ticks, nice_ticks

WIDTH, HEIGHT = 960, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 18, 34, 50
# Corners of the marks of a band, right of and below its point, of the radius of a circle's area.
SHAPES = {
    "u": ((0, -1.4), (1.25, 0.85), (-1.25, 0.85)),
    "g": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "i": ((0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)),
    "z": ((-1, -1), (1, -1), (0, 0), (1, 1), (-1, 1), (0, 0)),
    "y": ((-1.2, -0.5), (0, -1.3), (1.2, -0.5), (0.75, 1.05), (-0.75, 1.05)),
}
LEAST_SNR = 3.0
"""Least signal to noise of a magnitude that is plotted."""


class Axis(StrEnum):
    """The quantity that is plotted against time."""

    FLUX = "flux"
    MAG = "mag"


WHY_NO_POINT = {Axis.FLUX: "", Axis.MAG: ": none is positive and above 3 sigma"}


class Points(NamedTuple):
    """The points to draw: arrays of shape (points,), `y` and `error` in µJy or mag."""

    mjd: np.ndarray
    y: np.ndarray
    error: np.ndarray
    band: np.ndarray
    kind: np.ndarray  # "detection", "forced" or "limit"


def points(detections: pa.Table, axis: Axis) -> Points:
    """The points of a light curve that have a value on the axis."""

    def floats(name: str) -> np.ndarray:
        return detections[name].to_numpy().astype(np.float64)

    limit = detections["limit"].to_numpy()
    forced = detections["forced"].to_numpy()
    error = floats("flux_err") / 1000
    flux = np.where(limit, 5 * error, floats("flux") / 1000)
    band = np.array([band or "none" for band in detections["band"].to_pylist()], str)
    kind = np.where(limit, "limit", np.where(forced, "forced", "detection"))
    mjd = floats("mjd")
    shown = np.isfinite(flux) & (mjd >= FIRST) & (mjd <= LAST)
    y = flux
    if axis == Axis.MAG:
        with np.errstate(all="ignore"):
            shown &= (flux > 0) & (limit | ~(flux < LEAST_SNR * error))
            y, error = 23.9 - 2.5 * np.log10(flux), 1.0857 * error / flux
    error = np.where(limit | ~np.isfinite(error), 0, error)
    return Points(*(column[shown] for column in (mjd, y, error, band, kind)))


def light_curve_svg(detections: pa.Table, axis: Axis = Axis.FLUX) -> str:
    """The plot of a light curve, ``<svg>…</svg>``.

    Detections are filled marks, forced photometry is open marks, 5 sigma limits are triangles.
    Error bars are 1 sigma. Every mark has a title, which browsers show on hover.
    """
    drawn = points(detections, axis)
    if not len(drawn.mjd):
        return (
            '<svg class="plot" viewBox="0 0 960 120" role="img" aria-label="no points to plot">'
            '<text class="label" x="480" y="64" text-anchor="middle">'
            f"No point can be plotted{WHY_NO_POINT[axis]}.</text></svg>"
        )
    x = _Scale(*_padded(drawn.mjd.min(), drawn.mjd.max(), 0.03, 5.0), LEFT, WIDTH - RIGHT)
    low, high = _padded(*_span(drawn, axis), 0.08, 0.1)
    bottom, top = HEIGHT - BOTTOM, TOP
    y = _Scale(low, high, top, bottom) if axis == Axis.MAG else _Scale(low, high, bottom, top)
    name = "Magnitude (AB)" if axis == Axis.MAG else "Difference flux (µJy)"
    label = f"{name} of {len(drawn.mjd)} points over time"
    return "".join(
        [
            f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(label)}"><defs><clipPath id="frame"><rect x="{LEFT}" y="{TOP}" '
            f'width="{WIDTH - LEFT - RIGHT}" height="{bottom - top}"/></clipPath></defs>',
            *_grid(x, y, name),
            '<g clip-path="url(#frame)">',
            *_marks(drawn, x, y, axis),
            "</g></svg>",
        ]
    )


class _Scale(NamedTuple):
    """From values to coordinates in the image."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: Any) -> Any:
        part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.stop - self.start)


def _padded(low: float, high: float, part: float, least: float) -> tuple[float, float]:
    """The range widened at both ends by `part` of its width, or by `least` or more if empty."""
    size = max(abs(low), abs(high))
    pad = (high - low) * part
    if high - low <= 1e-9 * size:
        pad = max(least, 1e-6 * size)  # more than the resolution of a double
    return float(low - pad), float(high + pad)


def _span(drawn: Points, axis: Axis) -> tuple[float, float]:
    """The range of the y axis: all values, and the error bars that are not outliers."""
    measured = drawn.kind != "limit"
    if not measured.any():
        return float(drawn.y.min()), float(drawn.y.max())
    y, error = drawn.y[measured], drawn.error[measured]
    bars = np.where(error <= 5 * np.median(error), error, 0)
    low, high = float((y - bars).min()), float((y + bars).max())
    limits = drawn.y[~measured]
    if axis == Axis.FLUX:  # one shallow limit must not flatten the other points
        limits = np.minimum(limits, high + ((high - low) or abs(high) or 1.0))
    return float(min([low, *limits])), float(max([high, *limits]))


def _grid(x: _Scale, y: _Scale, name: str) -> Iterator[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value, text in nice_ticks(y.low, y.high, 6):
        up = y(value)
        kind = "zero" if value == 0 else "grid"
        yield f'<path class="{kind}" d="M{LEFT} {up:.1f}H{right}"/>'
        yield f'<text class="tick" x="{LEFT - 8}" y="{up + 4:.1f}" text-anchor="end">{text}</text>'
    for value, text in nice_ticks(x.low, x.high, 8):
        text = text.replace(",", "")
        at = f"{x(value):.1f}"
        yield f'<path class="grid" d="M{at} {TOP}V{bottom}"/>'
        yield f'<text class="tick" x="{at}" y="{bottom + 18}" text-anchor="middle">{text}</text>'
    for value, text in date_ticks(x.low, x.high):
        at = f"{x(value):.1f}"
        if not LEFT + 24 < x(value) < right - 30:
            continue  # the frame would cut its text off
        yield f'<path class="axis" d="M{at} {TOP}v-5"/>'
        yield f'<text class="tick" x="{at}" y="{TOP - 11}" text-anchor="middle">{text}</text>'
    yield f'<path class="axis" d="M{LEFT} {TOP}H{right}V{bottom}H{LEFT}Z"/>'
    middle = (TOP + bottom) / 2
    yield (
        f'<text class="label" x="{(LEFT + right) / 2}" y="{HEIGHT - 8}" text-anchor="middle">'
        f'MJD (TAI)</text><text class="label" transform="translate(16 {middle}) rotate(-90)" '
        f'text-anchor="middle">{name}</text>'
    )


def _marks(drawn: Points, x: _Scale, y: _Scale, axis: Axis) -> Iterator[str]:
    """Marks by kind and band, the most important on top."""
    unit = "mag" if axis == Axis.MAG else "µJy"
    at_x, at_y = x(drawn.mjd), y(drawn.y)
    bar = np.abs(y(drawn.y + drawn.error) - at_y)
    at_y = np.where(drawn.kind == "limit", np.maximum(at_y, TOP + 6), at_y)
    radius = 4.2 if len(drawn.mjd) < 400 else 3.2
    for kind in ("limit", "forced", "detection"):
        for band in np.unique(drawn.band[drawn.kind == kind]):
            chosen = np.flatnonzero((drawn.kind == kind) & (drawn.band == band)).tolist()
            yield f'<g class="{kind} band-{escape(str(band))}">'
            bars = [f"M{at_x[i]:.1f} {at_y[i] - bar[i]:.1f}v{2 * bar[i]:.1f}" for i in chosen]
            if kind != "limit":
                yield f'<path class="bar" d="{"".join(bars)}"/>'
            for i in chosen:
                text = f"{band} {drawn.y[i]:.4g} ± {drawn.error[i]:.2g} {unit}"
                if kind == "limit":
                    text = f"{band} limit {drawn.y[i]:.4g} {unit} (5 sigma)"
                title = f"<title>{escape(text)}, MJD {drawn.mjd[i]:.4f}</title>"
                yield mark(kind, str(band), at_x[i], at_y[i], radius, title)
            yield "</g>"


def mark(kind: str, band: str, x: float, y: float, radius: float, title: str = "") -> str:
    """The mark of a point: a limit is a triangle; else each band has its own shape.

    So bands can be told apart without their colours. Open and smaller marks are forced photometry.
    """
    if kind == "limit":
        return f'<path d="M{x - 4:.1f} {y - 3:.1f}h8l-4 7z">{title}</path>'
    if kind == "forced":
        radius *= 0.75
    if band not in SHAPES:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">{title}</circle>'
    corners = (f"{x + radius * right:.1f} {y + radius * down:.1f}" for right, down in SHAPES[band])
    return f'<path class="shape" d="M{"L".join(corners)}z">{title}</path>'
