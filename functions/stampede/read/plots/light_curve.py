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
from stampede.read.plots.marks import MarkFormat, edge_format, mark_format
from stampede.read.plots.numbers import measured
from stampede.read.plots.ticks import FIRST, LAST, date_ticks, nice_ticks
from stampede.read.plots.value_range import Fit, outliers, value_range
from stampede.runtime.counts import counted

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


UNIT_OF_MAG = "mag"
MARKS = (
    *((PointKind.LIMIT, False), (PointKind.FORCED, True), (PointKind.DETECTION, True)),
    *((PointKind.FORCED, False), (PointKind.DETECTION, False)),
)
"""Kinds of points, and whether they are faint; in the order in which they are drawn."""


class Fold(NamedTuple):
    """A period in days, and the MJD of phase 0."""

    period: float
    epoch: float

    def phase(self, mjd: np.ndarray) -> np.ndarray:
        """Phases from 0 up to 1."""
        return np.mod((mjd - self.epoch) / self.period, 1.0)


class Across(NamedTuple):
    """What lies across a plot.

    Attributes
    ----------
    name
        For who cannot see the plot.
    label
        Below the axis.
    sides
        Its ends; None for those of the points.
    has_dates
        Whether its values are MJD, so that dates stand above.
    frame
        Id of the plot's frame, one of the page.
    """

    name: str = "time"
    label: str = "MJD (TAI)"
    sides: tuple[float, float] | None = None
    has_dates: bool = True
    frame: str = "frame"

    @classmethod
    def folded(cls, fold: Fold) -> "Across":
        """Two cycles of a period."""
        label = f"Phase of {fold.period:.10g} days, 0 at MJD {fold.epoch:.10g}"
        return cls("phase", label, (0.0, 2.0), has_dates=False)


TIME = Across()


class Flux(StrEnum):
    """Which flux is plotted: that of the difference image, or that of the object in all."""

    DIFFERENCE = "difference"
    TOTAL = "total"


class Quantity(NamedTuple):
    """What is plotted against time."""

    axis: Axis = Axis.FLUX
    flux: Flux = Flux.DIFFERENCE

    @property
    def name(self) -> str:
        """Its name, with its unit."""
        what = "flux (µJy)" if self.axis == Axis.FLUX else "magnitude (AB)"
        return f"{self.flux.capitalize()} {what}"

    @property
    def unit(self) -> str:
        """Its unit."""
        return "µJy" if self.axis == Axis.FLUX else UNIT_OF_MAG


DIFFERENCE_FLUX = Quantity()


class Values(NamedTuple):
    """The value of each row in the unit of a quantity: arrays of shape (rows,).

    Attributes
    ----------
    y, error
        NaN if it has none; the error is 1 sigma, and 0 of a limit.
    faint
        Whether it was measured, and is within `LEAST_SNR` of nothing: its magnitude is a limit.
    negative
        Whether its flux is below 0.
    """

    y: np.ndarray
    error: np.ndarray
    faint: np.ndarray
    negative: np.ndarray


class Points(NamedTuple):
    """The points to draw: arrays of shape (points,), `y` and `error` in µJy or mag."""

    row: np.ndarray
    x: np.ndarray  # MJD, or phase
    mjd: np.ndarray
    y: np.ndarray
    error: np.ndarray
    band: np.ndarray
    kind: np.ndarray  # of `PointKind`
    faint: np.ndarray  # as in `Values`

    @property
    def is_limit(self) -> np.ndarray:
        """Whether each is drawn as a limit."""
        found: np.ndarray = self.faint | (self.kind == PointKind.LIMIT)
        return found

    def where(self, mask: np.ndarray) -> "Points":
        """Those of the mask."""
        return Points(*(column[mask] for column in self))


def values(detections: pa.Table, quantity: Quantity) -> Values:
    """The values of rows. That of a limit is `LIMIT_SNR` sigma.

    A limit is one of the difference flux; nobody says that of the total.
    """
    limit = detections["limit"].to_numpy()
    total = "total_" if quantity.flux == Flux.TOTAL else ""
    error = _floats(detections, f"{total}flux_err") / 1000
    y = _floats(detections, f"{total}flux") / 1000
    faint, negative = np.zeros(len(y), bool), y < 0
    with np.errstate(all="ignore"):
        if quantity.axis == Axis.MAG:
            faint = ~limit & (error > 0) & (np.abs(y / error) < LEAST_SNR)
        y = np.where(faint | limit, LIMIT_SNR * error, y)
        if quantity.axis == Axis.MAG:
            y, error = 23.9 - 2.5 * np.log10(np.where(y > 0, y, np.nan)), 1.0857 * error / y
    return Values(y, np.where(faint | limit, 0, error), faint, negative)


def _floats(detections: pa.Table, name: str) -> np.ndarray:
    column: np.ndarray = detections[name].to_numpy().astype(np.float64)
    return column


def points(detections: pa.Table, quantity: Quantity, fold: Fold | None = None) -> Points:
    """The points of a light curve that have a value; if folded, twice each."""
    y, error, faint, _ = values(detections, quantity)
    mjd, kind = _floats(detections, "mjd"), kinds_of(detections)
    shown = np.isfinite(y) & (mjd >= FIRST) & (mjd <= LAST)
    error = np.where(np.isfinite(error), error, 0)
    x = mjd if fold is None else fold.phase(mjd)
    rows = np.arange(len(y))
    found = Points(rows, x, mjd, y, error, bands_of(detections), kind, faint).where(shown)
    if fold is None:
        return found
    again = found._replace(x=found.x + 1)
    return Points(*(np.concatenate(both) for both in zip(found, again, strict=True)))


def light_curve_svg(
    detections: pa.Table,
    quantity: Quantity = DIFFERENCE_FLUX,
    links: Mapping[int, str] | None = None,
    chosen: np.ndarray | None = None,
    fold: Fold | None = None,
    fit: Fit = Fit.BULK,
) -> str:
    """The plot of a light curve, ``<svg>…</svg>``.

    Detections are filled marks, forced photometry is open marks, 5 sigma limits are triangles. What
    was measured and is too faint for a magnitude is a limit as well.
    Error bars are 1 sigma. Every mark has a title, which browsers show on hover. A point outside of
    the frame is a triangle at its edge.

    Parameters
    ----------
    links
        By the number of a row the page that its mark leads to.
    chosen
        Whether the axes must show a row: bool, of shape (rows,). All rows are drawn.
    fold
        Plot against phase, two cycles; None for time.
    fit
        Whether an outlier may lie outside of the frame.
    """
    drawn = points(detections, quantity, fold)
    across = Across.folded(fold) if fold else TIME
    return plot_svg(drawn, quantity, across, links or {}, chosen, fit)


def plot_svg(
    drawn: Points,
    quantity: Quantity,
    across: Across,
    links: Mapping[int, str],
    chosen: np.ndarray | None = None,
    fit: Fit = Fit.BULK,
) -> str:
    """The plot of these points, as `light_curve_svg`."""
    fitted = drawn if chosen is None else drawn.where(chosen[drawn.row])
    if not len(fitted.mjd):
        why = "" if chosen is None or chosen.all() else " of what is chosen"
        return (
            '<svg class="plot" viewBox="0 0 960 120" role="img" aria-label="no points to plot">'
            '<text class="label" x="480" y="64" text-anchor="middle">'
            f"No point can be plotted{why}.</text></svg>"
        )
    sides = across.sides or _padded(fitted.x.min(), fitted.x.max(), 0.03, 5.0)
    x = _Scale(*sides, LEFT, WIDTH - RIGHT)
    low, high = _y_range(fitted, quantity.axis, fit)
    bottom, top = HEIGHT - BOTTOM, TOP
    ends = (top, bottom) if quantity.axis == Axis.MAG else (bottom, top)
    y = _Scale(low, high, *ends)
    label = f"{quantity.name} of {_counted(fitted)} over {across.name}"
    folded = "" if across.has_dates else ' data-folded="1"'
    return "".join(
        [
            f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="{"group" if links else "img"}"'
            f' data-axis="{quantity.axis}" data-frame="{LEFT} {TOP} {WIDTH - RIGHT} {bottom}"'
            f' data-x="{x.low!r} {x.high!r}"'
            f' data-y="{y.at(TOP)!r} {y.at(bottom)!r}"{folded}'
            f' aria-label="{escape(label)}"><defs><clipPath id="{across.frame}">'
            f'<rect x="{LEFT}" y="{TOP}" '
            f'width="{WIDTH - LEFT - RIGHT}" height="{bottom - top}"/></clipPath></defs>',
            *_grid(x, y, quantity.name, across),
            f'<g clip-path="url(#{across.frame})">',
            *_marks(drawn, x, y, quantity.unit, links),
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


def count_outside(detections: pa.Table, quantity: Quantity, chosen: np.ndarray) -> int:
    """How many of the `chosen` points lie outside of a frame that fits the bulk of them."""
    fitted = points(detections, quantity)
    fitted = fitted.where(chosen[fitted.row])
    if not len(fitted.y):
        return 0
    return int(_is_outside(fitted, *_y_range(fitted, quantity.axis, Fit.BULK)).sum())


def _y_range(fitted: Points, axis: Axis, fit: Fit) -> tuple[float, float]:
    """The ends of the y axis for these points, at least one."""
    limits = fitted.where(fitted.is_limit).y
    shown = fitted.where(~fitted.is_limit)
    if fit == Fit.BULK:
        shown = shown.where(~outliers(shown.y, shown.kind))
    return _padded(*value_range(shown.y, shown.error, limits, axis == Axis.FLUX), 0.08, 0.1)


def _is_outside(drawn: Points, low: float, high: float) -> np.ndarray:
    """Whether each point is measured and not between these values."""
    found: np.ndarray = ~drawn.is_limit & ((drawn.y < low) | (drawn.y > high))
    return found


def _counted(drawn: Points) -> str:
    limits = int(drawn.is_limit.sum())
    return f"{counted(len(drawn.mjd) - limits, 'point')}" + (
        f" and {counted(limits, 'limit')}" if limits else ""
    )


def _grid(x: _Scale, y: _Scale, name: str, across: Across) -> Iterator[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    yield '<g class="ticks">'
    for number, (value, text) in enumerate(nice_ticks(y.low, y.high, 6)):
        up = y(value)
        kind = "zero" if value == 0 else "grid"
        yield f'<path class="{kind}" d="M{LEFT} {up:.1f}H{right}"/>'
        yield _tick(number, text, f"{LEFT - 8}", f"{up + 4:.1f}", "end")
    for number, (value, text) in enumerate(nice_ticks(x.low, x.high, 8)):
        text = text.replace(",", "")
        at = f"{x(value):.1f}"
        yield f'<path class="grid" d="M{at} {TOP}V{bottom}"/>'
        yield _tick(number, text, at, f"{bottom + 18}")
    for number, (value, text) in enumerate(date_ticks(x.low, x.high) if across.has_dates else ()):
        at = f"{x(value):.1f}"
        if not LEFT + 24 < x(value) < right - 30:
            continue  # the frame would cut its text off
        yield f'<path class="axis" d="M{at} {TOP}v-5"/>'
        yield _tick(number, text, at, f"{TOP - 11}")
    yield "</g>"
    yield f'<path class="axis" d="M{LEFT} {TOP}H{right}V{bottom}H{LEFT}Z"/>'
    middle = (TOP + bottom) / 2
    yield (
        f'<text class="label" x="{(LEFT + right) / 2}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{across.label}</text>"
        f'<text class="label wide" transform="translate(16 {middle}) rotate(-90)" '
        f'text-anchor="middle">{name}</text>'
    )


def _tick(number: int, text: str, x: str, y: str, anchor: str = "middle") -> str:
    """The text of a tick; every second one has no place on a narrow screen."""
    odd = " odd" if number % 2 else ""
    return f'<text class="tick{odd}" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>'


def _marks(
    drawn: Points, x: _Scale, y: _Scale, unit: str, links: Mapping[int, str]
) -> Iterator[str]:
    """Marks by kind and band, the most important on top."""
    outside = _is_outside(drawn, y.low, y.high)
    inside = drawn.where(~outside)
    radius = 4.2 if len(drawn.mjd) < 400 else 3.2
    for kind, faint in MARKS:
        mark = PointKind.LIMIT if faint else kind
        name = kind if mark == kind else f"{mark} {kind}"
        of_kind = inside.where((inside.kind == kind) & (inside.faint == faint))
        for band, some in _by_band(of_kind):
            across, up = x(some.x), y(some.y)
            half = np.abs(y(some.y + some.error) - up)
            up = np.where(some.is_limit, np.maximum(up, TOP + 6), up)
            yield f'<g class="{name} band-{escape(band)}">'
            if mark != PointKind.LIMIT:
                bars = _formatted("M%.2f %.2fv%.2f", [across, up - half, 2 * half])
                yield f'<path class="bar" d="{bars}"/>'
            yield from _titled(some, unit, mark_format(mark, band, radius), across, up, links)
            yield "</g>"
    yield from _edge_marks(drawn.where(outside), x, y, unit, links)


def _edge_marks(
    outside: Points, x: _Scale, y: _Scale, unit: str, links: Mapping[int, str]
) -> Iterator[str]:
    """Marks of the points outside of the frame, at its edge."""
    is_above = y(outside.y) < TOP
    for above in (True, False):
        for kind in (PointKind.FORCED, PointKind.DETECTION):
            for band, some in _by_band(outside.where((is_above == above) & (outside.kind == kind))):
                edge = np.full(len(some.y), TOP + 2.0 if above else HEIGHT - BOTTOM - 2.0)
                yield f'<g class="{kind} outside band-{escape(band)}">'
                yield from _titled(some, unit, edge_format(above), x(some.x), edge, links)
                yield "</g>"


def _by_band(drawn: Points) -> Iterator[tuple[str, Points]]:
    for band in np.unique(drawn.band).tolist():
        yield band, drawn.where(drawn.band == band)


def _titled(
    drawn: Points,
    unit: str,
    form: MarkFormat,
    across: np.ndarray,
    up: np.ndarray,
    links: Mapping[int, str],
) -> Iterator[str]:
    """The marks of one kind and band at these places, with their titles."""
    corners = [each for right, down in form.corners for each in (across + right, up + down)]
    plain = form.text.replace("%s", "<title>%s</title>")
    linked = f'<a href="%s" aria-label="alert, %s">{plain}</a>'
    forms: list[str] = []
    values: list[float | str] = []
    rows = zip(
        drawn.row.tolist(), np.column_stack(corners).tolist(), _titles(drawn, unit), strict=True
    )
    for row, places, title in rows:
        link = links.get(row)
        forms.append(linked if link else plain)
        values += [escape(link), title, *places, title] if link else [*places, title]
    yield "".join(forms) % tuple(values)


def _titles(drawn: Points, unit: str) -> Iterator[str]:
    """What each of these points is, in words."""
    columns = (drawn.y, drawn.error, drawn.mjd, drawn.is_limit, drawn.band)
    for y, error, mjd, is_limit, band in zip(*(each.tolist() for each in columns), strict=True):
        value, sigma = measured(y, error, unit == UNIT_OF_MAG)
        what = f"limit {value} {unit} (5 sigma)" if is_limit else f"{value} ± {sigma or 0} {unit}"
        yield f"{escape(band)} {what}, MJD {mjd:.4f}"


def _formatted(form: str, columns: Sequence[np.ndarray]) -> str:
    """A format filled with each row of these columns: one ``%`` for all takes half the time."""
    return form * len(columns[0]) % tuple(np.column_stack(columns).ravel().tolist())
