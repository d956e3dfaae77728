"""A light curve as an SVG image that needs no script, no font and no other file.

``static/object.js`` enlarges it: it reads the attributes ``data-`` and the error bars.

The page's style sheet sets colours by class, for example ``band-g``, ``axis`` and ``grid``.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from html import escape
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stampede.lookup.points import PointKind, bands_of, kinds_of
from stampede.read.plots.marks import mark_format
from stampede.read.plots.ticks import FIRST, LAST, date_ticks, nice_ticks

WIDTH, HEIGHT = 960, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 18, 34, 50
LEAST_SNR = 3.0
"""Least signal to noise of a magnitude that is plotted."""
LIMIT_SNR = 5.0
"""Signal to noise of a limit."""


class Axis(StrEnum):
    """The quantity that is plotted against time."""

    FLUX = "flux"
    MAG = "mag"


class Fold(NamedTuple):
    """A period in days, and the MJD of phase 0."""

    period: float
    epoch: float

    def phase(self, mjd: np.ndarray) -> np.ndarray:
        """Phases from 0 up to 1."""
        return np.mod((mjd - self.epoch) / self.period, 1.0)


NAMES = {Axis.FLUX: "Difference flux (µJy)", Axis.MAG: "Magnitude (AB)"}
UNITS = {Axis.FLUX: "µJy", Axis.MAG: "mag"}
WHY_NO_POINT = {Axis.FLUX: "", Axis.MAG: ": none is positive and above 3 sigma"}


class Points(NamedTuple):
    """The points to draw: arrays of shape (points,), `y` and `error` in µJy or mag."""

    row: np.ndarray
    x: np.ndarray  # MJD, or phase
    mjd: np.ndarray
    y: np.ndarray
    error: np.ndarray
    band: np.ndarray
    kind: np.ndarray  # of `PointKind`

    def where(self, mask: np.ndarray) -> "Points":
        """Those of the mask."""
        return Points(*(column[mask] for column in self))


def values(detections: pa.Table, axis: Axis) -> tuple[np.ndarray, np.ndarray]:
    """Value and 1 sigma of each row in the unit of the axis; NaN if it has none.

    The value of a limit is `LIMIT_SNR` sigma, and its error 0.
    """
    limit = detections["limit"].to_numpy()
    error = _floats(detections, "flux_err") / 1000
    y = np.where(limit, LIMIT_SNR * error, _floats(detections, "flux") / 1000)
    if axis == Axis.MAG:
        with np.errstate(all="ignore"):
            y, error = 23.9 - 2.5 * np.log10(np.where(y > 0, y, np.nan)), 1.0857 * error / y
    return y, np.where(limit, 0, error)


def _floats(detections: pa.Table, name: str) -> np.ndarray:
    column: np.ndarray = detections[name].to_numpy().astype(np.float64)
    return column


def points(detections: pa.Table, axis: Axis, fold: Fold | None = None) -> Points:
    """The points of a light curve that have a value on the axis; if folded, twice each."""
    y, error = values(detections, axis)
    mjd, kind = _floats(detections, "mjd"), kinds_of(detections)
    shown = np.isfinite(y) & (mjd >= FIRST) & (mjd <= LAST)
    if axis == Axis.MAG:
        with np.errstate(all="ignore"):
            shown &= (kind == PointKind.LIMIT) | ~(1.0857 / error < LEAST_SNR)
    error = np.where(np.isfinite(error), error, 0)
    x = mjd if fold is None else fold.phase(mjd)
    found = Points(np.arange(len(y)), x, mjd, y, error, bands_of(detections), kind).where(shown)
    if fold is None:
        return found
    again = found._replace(x=found.x + 1)
    return Points(*(np.concatenate(both) for both in zip(found, again, strict=True)))


def light_curve_svg(
    detections: pa.Table,
    axis: Axis = Axis.FLUX,
    links: Mapping[int, str] | None = None,
    chosen: np.ndarray | None = None,
    fold: Fold | None = None,
) -> str:
    """The plot of a light curve, ``<svg>…</svg>``.

    Detections are filled marks, forced photometry is open marks, 5 sigma limits are triangles.
    Error bars are 1 sigma. Every mark has a title, which browsers show on hover.

    Parameters
    ----------
    links
        By the number of a row the page that its mark leads to.
    chosen
        Whether the axes must show a row: bool, of shape (rows,). All rows are drawn.
    fold
        Plot against phase, two cycles; None for time.
    """
    drawn = points(detections, axis, fold)
    fitted = drawn if chosen is None else drawn.where(chosen[drawn.row])
    if not len(fitted.mjd):
        why = WHY_NO_POINT[axis] if chosen is None or chosen.all() else " of what is chosen"
        return (
            '<svg class="plot" viewBox="0 0 960 120" role="img" aria-label="no points to plot">'
            '<text class="label" x="480" y="64" text-anchor="middle">'
            f"No point can be plotted{why}.</text></svg>"
        )
    sides = (0.0, 2.0) if fold else _padded(fitted.x.min(), fitted.x.max(), 0.03, 5.0)
    x = _Scale(*sides, LEFT, WIDTH - RIGHT)
    low, high = _padded(*_span(fitted, axis), 0.08, 0.1)
    bottom, top = HEIGHT - BOTTOM, TOP
    y = _Scale(low, high, top, bottom) if axis == Axis.MAG else _Scale(low, high, bottom, top)
    label = f"{NAMES[axis]} of {len(fitted.mjd):,} points over {'phase' if fold else 'time'}"
    folded = ' data-folded="1"' if fold else ""
    return "".join(
        [
            f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="{"group" if links else "img"}"'
            f' data-frame="{LEFT} {TOP} {WIDTH - RIGHT} {bottom}" data-x="{x.low!r} {x.high!r}"'
            f' data-y="{y.at(TOP)!r} {y.at(bottom)!r}"{folded}'
            f' aria-label="{escape(label)}"><defs><clipPath id="frame"><rect x="{LEFT}" y="{TOP}" '
            f'width="{WIDTH - LEFT - RIGHT}" height="{bottom - top}"/></clipPath></defs>',
            *_grid(x, y, NAMES[axis], fold),
            '<g clip-path="url(#frame)">',
            *_marks(drawn, x, y, axis, links or {}),
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

    def at(self, place: float) -> float:
        """The value at a coordinate."""
        part = (place - self.start) / (self.stop - self.start)
        return self.low + part * (self.high - self.low)


def _padded(low: float, high: float, part: float, least: float) -> tuple[float, float]:
    """The range widened at both ends by `part` of its width, or by `least` or more if empty."""
    size = max(abs(low), abs(high))
    pad = (high - low) * part
    if high - low <= 1e-9 * size:
        pad = max(least, 1e-6 * size)  # more than the resolution of a double
    return float(low - pad), float(high + pad)


def _span(drawn: Points, axis: Axis) -> tuple[float, float]:
    """The range of the y axis: all values, and the error bars that are not outliers."""
    measured = drawn.kind != PointKind.LIMIT
    if not measured.any():
        return float(drawn.y.min()), float(drawn.y.max())
    y, error = drawn.y[measured], drawn.error[measured]
    bars = np.where(error <= 5 * np.median(error), error, 0)
    low, high = float((y - bars).min()), float((y + bars).max())
    limits = drawn.y[~measured]
    if axis == Axis.FLUX:  # one shallow limit must not flatten the other points
        limits = np.minimum(limits, high + ((high - low) or abs(high) or 1.0))
    return float(min([low, *limits])), float(max([high, *limits]))


def _grid(x: _Scale, y: _Scale, name: str, fold: Fold | None) -> Iterator[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    yield '<g class="ticks">'
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
    for value, text in () if fold else date_ticks(x.low, x.high):
        at = f"{x(value):.1f}"
        if not LEFT + 24 < x(value) < right - 30:
            continue  # the frame would cut its text off
        yield f'<path class="axis" d="M{at} {TOP}v-5"/>'
        yield f'<text class="tick" x="{at}" y="{TOP - 11}" text-anchor="middle">{text}</text>'
    yield "</g>"
    yield f'<path class="axis" d="M{LEFT} {TOP}H{right}V{bottom}H{LEFT}Z"/>'
    middle = (TOP + bottom) / 2
    across = (
        f"Phase of {fold.period:.10g} days, 0 at MJD {fold.epoch:.10g}" if fold else "MJD (TAI)"
    )
    yield (
        f'<text class="label" x="{(LEFT + right) / 2}" y="{HEIGHT - 8}" text-anchor="middle">'
        f'{across}</text><text class="label" transform="translate(16 {middle}) rotate(-90)" '
        f'text-anchor="middle">{name}</text>'
    )


def _marks(
    drawn: Points, x: _Scale, y: _Scale, axis: Axis, links: Mapping[int, str]
) -> Iterator[str]:
    """Marks by kind and band, the most important on top."""
    at_y = y(drawn.y)
    bar = np.abs(y(drawn.y + drawn.error) - at_y)
    at_y = np.where(drawn.kind == PointKind.LIMIT, np.maximum(at_y, TOP + 6), at_y)
    radius = 4.2 if len(drawn.mjd) < 400 else 3.2
    for kind in (PointKind.LIMIT, PointKind.FORCED, PointKind.DETECTION):
        of_kind = drawn.kind == kind
        for band in np.unique(drawn.band[of_kind]).tolist():
            which = of_kind & (drawn.band == band)
            across, up, half = x(drawn.x[which]), at_y[which], bar[which]
            yield f'<g class="{kind} band-{escape(band)}">'
            if kind != PointKind.LIMIT:
                bars = _formatted("M%.2f %.2fv%.2f", [across, up - half, 2 * half])
                yield f'<path class="bar" d="{bars}"/>'
            form = mark_format(kind, band, radius)
            corners = [each for right, down in form.corners for each in (across + right, up + down)]
            yield from _titled(drawn.where(which), kind, UNITS[axis], form.text, corners, links)
            yield "</g>"


def _titled(
    drawn: Points,
    kind: PointKind,
    unit: str,
    form: str,
    corners: Sequence[np.ndarray],
    links: Mapping[int, str],
) -> Iterator[str]:
    """The marks of one kind and band with their titles; `form` is that of a `MarkFormat`."""
    band = escape(str(drawn.band[0])).replace("%", "%%")
    title, told = f"{band} %.4g ± %.2g {unit}, MJD %.4f", [drawn.y, drawn.error, drawn.mjd]
    if kind == PointKind.LIMIT:
        title, told = f"{band} limit %.4g {unit} (5 sigma), MJD %.4f", [drawn.y, drawn.mjd]
    form = form.replace("%s", f"<title>{title}</title>")
    if not links:
        yield _formatted(form, [*corners, *told])
        return
    linked = f'<a href="%s" aria-label="alert, {title}">{form}</a>'
    forms: list[str] = []
    values: list[float | str] = []
    numbers = np.column_stack([*told, *corners, *told]).tolist()
    for row, each in zip(drawn.row.tolist(), numbers, strict=True):
        link = links.get(row)
        forms.append(linked if link else form)
        values += [escape(link), *each] if link else each[len(told) :]
    yield "".join(forms) % tuple(values)


def _formatted(form: str, columns: Sequence[np.ndarray]) -> str:
    """A format filled with each row of these columns: one ``%`` for all takes half the time."""
    return form * len(columns[0]) % tuple(np.column_stack(columns).ravel().tolist())
