"""Marks of a plot's points, as SVG.

A limit is a triangle. Of the other points each band has a shape of its own, so that bands can be
told apart without their colours.
"""

from functools import cache

from stampede.lookup.points import PointKind

# Corners of the marks of a band, right of and below its point, of the radius of a circle's area.
SHAPES = {
    "u": ((0, -1.4), (1.25, 0.85), (-1.25, 0.85)),
    "g": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "i": ((0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)),
    "z": ((-1, -1), (1, -1), (0, 0), (1, 1), (-1, 1), (0, 0)),
    "y": ((-1.2, -0.5), (0, -1.3), (1.2, -0.5), (0.75, 1.05), (-0.75, 1.05)),
}


def mark(kind: str, band: str, x: float, y: float, radius: float, title: str = "") -> str:
    """The mark of a point; that of forced photometry is smaller, and the style sheet opens it."""
    if kind == PointKind.LIMIT:
        return f'<path d="M{x - 4:.1f} {y - 3:.1f}h8l-4 7z">{title}</path>'
    if kind == PointKind.FORCED:
        radius *= 0.75
    if band not in SHAPES:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">{title}</circle>'
    corners = [f"{x + right:.1f} {y + down:.1f}" for right, down in _corners(band, radius)]
    return f'<path class="shape" d="M{"L".join(corners)}z">{title}</path>'


@cache
def _corners(band: str, radius: float) -> list[tuple[float, float]]:
    """The corners of a shape of that radius; a page has up to four radii."""
    return [(radius * right, radius * down) for right, down in SHAPES[band]]
