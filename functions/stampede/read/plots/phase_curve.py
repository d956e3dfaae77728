"""The phase curve of a body of the solar system: reduced magnitudes against the phase angle."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from stampede.read.plots.light_curve import Across, Axis, Flux, Quantity, plot_svg, points

ANGLE = Across("the phase angle", "Phase angle (°)", has_dates=False, frame="phase-frame")


class Reduced(Quantity):
    """The magnitude at 1 au from the Sun and from the observer."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """Its name, with its unit."""
        return "Reduced magnitude (AB)"


REDUCED = Reduced(Axis.MAG, Flux.DIFFERENCE)


def phase_curve_svg(light_curve: pa.Table, links: Mapping[int, str]) -> str:
    """The plot ``<svg>…</svg>``; empty if no magnitude has a phase angle and distances.

    The reduced magnitude is ``mag - 5 log10(r delta)``, where r and delta are the distances from
    the Sun and from the observer in au (Bowell et al. 1989, Asteroids II, 524).

    Parameters
    ----------
    light_curve
        Rows of `MOVING` with the columns `forced` and `limit`.
    links
        By the number of a row the page that its mark leads to.
    """
    angle, sun, observer = (
        light_curve[name].to_numpy(zero_copy_only=False).astype(np.float64)
        for name in ("phase_angle", "helio_distance", "topo_distance")
    )
    known = np.isfinite(angle) & (sun > 0) & (observer > 0)
    if not known.any():
        return ""
    factor = np.where(known, sun * observer, np.nan) ** 2
    for name in ("flux", "flux_err"):
        values = light_curve[name].to_numpy(zero_copy_only=False).astype(np.float64) * factor
        at = light_curve.schema.get_field_index(name)
        light_curve = light_curve.set_column(at, name, pa.array(values, pa.float64()))
    drawn = points(light_curve, REDUCED)
    drawn = drawn._replace(x=angle[drawn.row])
    if not len(drawn.x):
        return ""
    pad = max(0.5, 0.03 * float(np.ptp(drawn.x)))
    sides = float(drawn.x.min()) - pad, float(drawn.x.max()) + pad
    return plot_svg(drawn, REDUCED, ANGLE._replace(sides=sides), links)
