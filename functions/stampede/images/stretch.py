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
negative one is black.
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


def limits(
    image: np.ndarray, low: float | None = None, high: float | None = None
) -> tuple[float, float]:
    """Pixel values to show as black and as white, in the image's unit.

    Parameters
    ----------
    low, high
        Percentiles, 0 to 100, of the finite pixels; None means the default by the noise.

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
    median = _percentile(finite, 50)
    sigma = 1.4826 * _median_deviation(finite.astype(np.float64), median)
    black = median - 2 * sigma if low is None else _percentile(finite, low)
    if high is None:
        return black, max(_percentile(finite, WHITE), median + 20 * sigma)
    return black, _percentile(finite, high)


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
) -> np.ndarray:
    """Brightness of every pixel.

    Parameters
    ----------
    image
        Any shape, any unit; NaN and infinities allowed.
    low, high
        As in `limits`.

    Returns
    -------
    numpy.ndarray
        float64 of the same shape, in [0, 1]; NaN where the pixel is NaN. A constant image
        becomes 0 everywhere.
    """
    black, white = limits(image, low, high)
    x = image.astype(np.float64) - black
    x = np.clip(x / (white - black), 0, 1) if white > black else np.where(np.isnan(x), x, 0.0)
    return curve(x, kind)


def curve(x: np.ndarray, kind: Stretch) -> np.ndarray:
    """Brightness of ``x``: of 0 it is 0, of 1 it is 1."""
    match kind:
        case Stretch.LINEAR:
            return x
        case Stretch.LOG:
            return np.log(LOG_A * x + 1) / np.log(LOG_A + 1)
        case Stretch.ASINH:
            return np.arcsinh(x / ASINH_A) / np.arcsinh(1 / ASINH_A)
