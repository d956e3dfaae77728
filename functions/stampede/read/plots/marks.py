"""Marks of a plot's points, as SVG.

A limit is a triangle. Of the other points each band of a survey has a shape of its own, so that
bands can be told apart without their colours.
"""

from functools import lru_cache
from typing import NamedTuple

from stampede.alerts import surveys
from stampede.lookup.points import PointKind

# Corners of the marks of a band, right of and below its point, of the radius of a circle's area.
# The bands of all surveys take them in turn; that without corners is a circle.
SHAPES: tuple[tuple[tuple[float, float], ...], ...] = (
    ((0, -1.4), (1.25, 0.85), (-1.25, 0.85)),
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    (),
    ((0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)),
    ((-1, -1), (1, -1), (0, 0), (1, 1), (-1, 1), (0, 0)),
    ((-1.2, -0.5), (0, -1.3), (1.2, -0.5), (0.75, 1.05), (-0.75, 1.05)),
)


class MarkFormat(NamedTuple):
    """A mark as a format for ``%``: the coordinates of each of `corners`, then its title.

    `corners` lie right of and below the point.
    """

    text: str
    corners: tuple[tuple[float, float], ...]


@lru_cache(128)  # a band may be any text
def mark_format(kind: str, band: str, radius: float) -> MarkFormat:
    """The mark of a point; that of forced photometry is smaller, and the style sheet opens it."""
    if kind == PointKind.LIMIT:
        return MarkFormat('<path d="M%.1f %.1fh8l-4 7z">%s</path>', ((-4, -3),))
    if kind == PointKind.FORCED:
        radius *= 0.75
    known = list(surveys.bands())
    shape = SHAPES[known.index(band) % len(SHAPES)] if band in known else ()
    if not shape:
        circle = f'<circle cx="%.1f" cy="%.1f" r="{radius:.1f}">%s</circle>'
        return MarkFormat(circle, ((0, 0),))
    corners = tuple((radius * right, radius * down) for right, down in shape)
    path = "L".join(["%.1f %.1f"] * len(corners))
    return MarkFormat(f'<path class="shape" d="M{path}z">%s</path>', corners)


def edge_format(above: bool) -> MarkFormat:
    """The mark of a point above or below the frame: a triangle whose tip is at the edge."""
    base, tip = (7, -7) if above else (-7, 7)
    return MarkFormat(f'<path class="edge" d="M%.1f %.1fh8l-4 {tip}z">%s</path>', ((-4, base),))


def mark(kind: str, band: str, x: float, y: float, radius: float) -> str:
    """The mark of one point, without a title."""
    text, corners = mark_format(kind, band, radius)
    return text % (*(n for right, down in corners for n in (x + right, y + down)), "")
