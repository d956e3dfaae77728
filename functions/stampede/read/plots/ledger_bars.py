"""Bars of a partition's offsets: stored, dead letters, accepted or not, in flight or missing."""

from collections.abc import Iterable, Mapping

import numpy as np

from stampede.store.offsets.coverage import Interval

CELLS = 400
"""Cells of a bar. Each has the kind of the worst offset in it, so that no gap is too narrow."""
HEIGHT = 14
KINDS = {
    "stored": "stored",
    "accepted": "accepted dead letters",
    "flight": "in flight",
    "dead": "dead letters",
    "missing": "missing",
}
"""The kinds of offsets, from the best to the worst, and their names."""


def bar_svg(low: int, high: int, spans: Mapping[str, Iterable[Interval]], label: str) -> str:
    """The bar of offsets ``[low, high)``.

    Parameters
    ----------
    spans
        Half-open intervals of offsets of each of `KINDS`; others are left out.
    label
        What a screen reader says of the bar; it must be safe to show in XML.
    """
    worst = np.zeros(CELLS, np.int8)
    for rank, kind in enumerate(KINDS, 1):
        worst[_cells(low, high, spans.get(kind, ()))] = rank
    paths = "".join(
        f'<path class="{kind}" d="{_path(worst == rank)}"/>'
        for rank, kind in enumerate(KINDS, 1)
        if (worst == rank).any()
    )
    return (
        f'<svg class="offsets" viewBox="0 0 {CELLS} {HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="{label}">{paths}</svg>'
    )


def _cells(low: int, high: int, spans: Iterable[Interval]) -> np.ndarray:
    """Which cells have any offset of these intervals: bool, of shape (CELLS,)."""
    ends = np.array([*spans], np.int64).reshape(-1, 2).clip(low, high)
    ends = ends[ends[:, 0] < ends[:, 1]]
    scale = CELLS / max(1, high - low)
    first = np.floor((ends[:, 0] - low) * scale).astype(np.int64).clip(0, CELLS - 1)
    last = np.ceil((ends[:, 1] - low) * scale).astype(np.int64).clip(1, CELLS)
    depth = np.zeros(CELLS + 1, np.int64)
    np.add.at(depth, first, 1)
    np.add.at(depth, np.maximum(last, first + 1), -1)
    inside: np.ndarray = np.cumsum(depth)[:CELLS] > 0
    return inside


def _path(cells: np.ndarray) -> str:
    """Rectangles of neighbouring cells."""
    edges = np.flatnonzero(np.diff(cells, prepend=False, append=False)).reshape(-1, 2)
    return "".join(f"M{a} 0H{b}V{HEIGHT}H{a}z" for a, b in edges.tolist())
