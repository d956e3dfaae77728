"""Maps pixel values to brightness between 0 and 1, so that the source stands out.

With ``x = (value - low) / (high - low)`` cut to [0, 1], the stretches are those of DS9 and
astropy.visualization:

* linear: ``x``
* log: ``log(1000 x + 1) / log(1001)``
* asinh: ``asinh(10 x) / asinh(10)`` (Lupton, Gunn & Szalay 1999, AJ 118, 1406)

Limits given by the caller are percentiles of the pixels that have a value. The default limits
follow the noise, ``sigma = 1.4826 median|value - median|``: black is 2 sigma below the median,
white is the 99.7th percentile (of 63 x 63 pixels, the brightest 12) but at least 20 sigma above
the median. So the sky is dark grey for every source, a faint source still stands out, and a
negative one is black. The stretch zscale is linear between the limits of IRAF's display task
instead: see `zscale`.
"""

from enum import StrEnum

import numpy as np

LOG_A = 1000.0
ASINH_A = 0.1
WHITE = 99.7


class Stretch(StrEnum):
    """Function from pixel values to brightness."""

    ASINH = "asinh"
    LINEAR = "linear"
    LOG = "log"
    ZSCALE = "zscale"


def limits(
    image: np.ndarray,
    low: float | None = None,
    high: float | None = None,
    kind: Stretch = Stretch.ASINH,
) -> tuple[float, float]:
    """Pixel values to show as black and as white, in the image's unit.

    Parameters
    ----------
    low, high
        Percentiles, 0 to 100, of the finite pixels; None means the default of the stretch.

    Returns
    -------
    tuple[float, float]
        (0, 0) if no pixel is finite.
    """
    # Sorted once: numpy would partition the pixels for every percentile.
    finite = np.sort(image, axis=None)
    if finite.size and not np.isfinite(finite[[0, -1]]).all():  # NaN and infinities are at the ends
        finite = finite[np.isfinite(finite)]
    if not finite.size:
        return 0.0, 0.0
    if kind == Stretch.ZSCALE:
        black, white = zscale(finite.astype(np.float64))
        return (
            black if low is None else _percentile(finite, low),
            white if high is None else _percentile(finite, high),
        )
    median = _percentile(finite, 50)
    sigma = 1.4826 * _median_deviation(finite.astype(np.float64), median)
    black = median - 2 * sigma if low is None else _percentile(finite, low)
    if high is None:
        return black, max(_percentile(finite, WHITE), median + 20 * sigma)
    return black, _percentile(finite, high)


@np.errstate(over="ignore", invalid="ignore")  # pixels of 1e308
def zscale(ordered: np.ndarray) -> tuple[float, float]:
    """The limits of IRAF's display task for pixels in ascending order, as astropy computes them.

    A line is fitted to the values over their rank; pixels more than 2.5 sigma off the line are left
    out of the next of 5 fits, with their neighbours. The limits are where the line, 4 times as
    steep, leaves the ranks. If half of the pixels are left out, they are the extremes.
    """
    size = ordered.size
    rank = np.arange(size, dtype=np.float64)
    good = np.ones(size, bool)
    fewest, grow = max(5, size // 2), max(1, size // 100)
    slope, kept = 0.0, size + 1
    for _ in range(5):
        if not fewest <= good.sum() < kept:
            break
        kept = int(good.sum())
        ranks, values = rank[good] - rank[good].mean(), ordered[good] - ordered[good].mean()
        slope = float((ranks * values).sum() / (ranks**2).sum())
        off = ordered - ordered[good].mean() - slope * (rank - rank[good].mean())
        bad = ~good | (np.abs(off) > 2.5 * off[good].std())
        good = ~np.convolve(bad, np.ones(grow, bool), "same").astype(bool)
    if good.sum() < fewest or not np.isfinite(slope):
        return float(ordered[0]), float(ordered[-1])
    middle, median = (size - 1) // 2, float(np.median(ordered))
    black = max(float(ordered[0]), median - (middle - 1) * slope / 0.25)
    return black, min(float(ordered[-1]), median + (size - middle) * slope / 0.25)


def _median_deviation(ordered: np.ndarray, median: float) -> float:
    """``median|value - median|`` without sorting again.

    The `count` values that are closest to the median are neighbours, so their greatest deviation is
    the least, over all groups of `count` neighbours, of the greater deviation of the two ends.
    """
    size = ordered.size
    middle = [
        float(np.maximum(median - ordered[: size - count + 1], ordered[count - 1 :] - median).min())
        for count in {(size + 1) // 2, size // 2 + 1}
    ]
    return sum(middle) / len(middle)


def _percentile(ordered: np.ndarray, percent: float) -> float:
    """As `numpy.percentile`: linear between neighbours."""
    at = percent / 100 * (ordered.size - 1)
    below = int(at)
    above = min(below + 1, ordered.size - 1)
    return float(ordered[below]) + (at - below) * (float(ordered[above]) - float(ordered[below]))


@np.errstate(over="ignore", invalid="ignore")  # pixels of 1e308
def stretch(
    image: np.ndarray,
    kind: Stretch = Stretch.ASINH,
    low: float | None = None,
    high: float | None = None,
    within: tuple[float, float] | None = None,
) -> np.ndarray:
    """Brightness of every pixel.

    Parameters
    ----------
    image
        Any shape, any unit; NaN and infinities allowed.
    low, high
        As in `limits`.
    within
        Values to show as black and as white; None means `limits`.

    Returns
    -------
    numpy.ndarray
        float64 of the same shape, in [0, 1]; NaN where the pixel is NaN. A constant image
        becomes 0 everywhere.
    """
    black, white = within or limits(image, low, high, kind)
    x = image.astype(np.float64) - black
    x = np.clip(x / (white - black), 0, 1) if white > black else np.where(np.isnan(x), x, 0.0)
    return curve(x, kind)


def curve(x: np.ndarray, kind: Stretch) -> np.ndarray:
    """Brightness of ``x``: of 0 it is 0, of 1 it is 1."""
    bright: np.ndarray
    match kind:
        case Stretch.LINEAR | Stretch.ZSCALE:
            bright = x
        case Stretch.LOG:
            bright = np.log(LOG_A * x + 1) / np.log(LOG_A + 1)
        case Stretch.ASINH:
            bright = np.arcsinh(x / ASINH_A) / np.arcsinh(1 / ASINH_A)
    return bright
