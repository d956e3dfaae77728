"""Which values a plot's axis must show: those of the bulk of its points."""

from enum import StrEnum

import numpy as np

OUTLIERS = 50
"""One in so many points of a kind may lie outside of the frame."""


class Fit(StrEnum):
    """What the axis fits: the bulk of the points, or each of them."""

    BULK = "bulk"
    ALL = "all"


def outliers(y: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """Whether each point is so far from all others that it would flatten them.

    Of each kind at most one point in `OUTLIERS` is an outlier: so the first detections of an object
    are none, however many forced points lie around zero. And an outlier is further from the other
    points than these are from each other.

    Parameters
    ----------
    y, kind
        Value and kind of each point, finite, of shape (points,).

    Returns
    -------
    numpy.ndarray
        bool, of shape (points,).
    """
    far = np.zeros(len(y), bool)
    if len(y) < OUTLIERS:
        return far
    distance = np.abs(y - np.median(y))
    for one in np.unique(kind):
        (of_kind,) = np.nonzero(kind == one)
        most = len(of_kind) // OUTLIERS
        far[of_kind[np.argsort(-distance[of_kind], kind="stable")[:most]]] = True
    low, high = y[~far].min(), y[~far].max()
    far &= (y < low - (high - low)) | (y > high + (high - low))
    return far


def value_range(
    y: np.ndarray, error: np.ndarray, limits: np.ndarray, has_shallow_limits: bool
) -> tuple[float, float]:
    """The least and the greatest value that the axis must show.

    Parameters
    ----------
    y, error
        Measured values and their errors (1 sigma), of shape (points,). An error bar counts unless
        it is five times as long as is usual.
    limits
        Values of limits, of shape (limits,).
    has_shallow_limits
        Whether a limit far above all points may lie outside, which would flatten them.
    """
    if not len(y):
        return float(limits.min()), float(limits.max())
    bars = np.where(error <= 5 * np.median(error), error, 0)
    low, high = float((y - bars).min()), float((y + bars).max())
    if has_shallow_limits:
        limits = np.minimum(limits, high + ((high - low) or abs(high) or 1.0))
    return float(min([low, *limits])), float(max([high, *limits]))
