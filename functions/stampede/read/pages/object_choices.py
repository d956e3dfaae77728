"""What a reader has chosen on the page of an object: the query of its address."""

from collections.abc import Collection
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from stampede.alerts import surveys
from stampede.lookup.errors import BadParameter
from stampede.lookup.points import NO_BAND, PointKind
from stampede.read.plots.light_curve import Axis, Flux
from stampede.read.plots.value_range import Fit
from stampede.read.web import parameters

MOST_PAGES = 1_000_000
PERIODS = 1e-5, 1e5
"""Days: from a second, less than an exposure takes, to longer than a survey."""
EPOCHS = -1e6, 1e6
"""MJD."""
OTHER_AXIS = {Axis.FLUX: (Axis.MAG, "magnitudes"), Axis.MAG: (Axis.FLUX, "flux")}
"""What a link beside the plot shows instead: an axis, and its name."""


class Choices(NamedTuple):
    """The parameters of the page of an object.

    Attributes
    ----------
    axis, flux
        What the plot and the table show; None for what the object has.
    bands, kinds
        Bands and kinds of points to show; empty for all.
    page
        Which page of the alerts, from 1 on; None for that of `alert`, else the first.
    points
        Which page of the table of points.
    alert
        An alert to mark.
    period, epoch
        Days, and the MJD of phase 0, to fold the plot by; None for no folding, and for the MJD of
        the first point.
    fit
        Whether outliers may lie outside of the plot.
    """

    axis: Axis = Axis.FLUX
    flux: Flux | None = None
    bands: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    page: int | None = None
    points: int = 1
    alert: int | None = None
    period: float | None = None
    epoch: float | None = None
    fit: Fit = Fit.BULK

    @classmethod
    def of(cls, query: QueryParams) -> "Choices":
        """Those in a query. Raises `BadParameter`."""
        # A form that is not filled in sends an empty period.
        query = QueryParams([(key, value) for key, value in query.multi_items() if value])
        if "epoch" in query and "period" not in query:
            raise BadParameter("epoch", "an epoch needs a period: add period= (days)")
        return cls(
            parameters.choice(query, "axis", Axis, Axis.FLUX),
            parameters.choice(query, "flux", Flux, Flux.DIFFERENCE) if "flux" in query else None,
            _several(query, "bands", (*surveys.bands(), NO_BAND)),
            _several(query, "kinds", tuple(PointKind)),
            parameters.whole_number(query, "page", 1, MOST_PAGES),
            parameters.whole_number(query, "points", 1, MOST_PAGES) or 1,
            parameters.alert_id(query["alert"], "alert") if "alert" in query else None,
            parameters.number(query, "period", *PERIODS),
            parameters.number(query, "epoch", *EPOCHS),
            parameters.choice(query, "fit", Fit, Fit.BULK),
        )

    def query(self, **changes: Any) -> str:
        """The query with these changes, from its question mark on; empty if all is by default."""
        chosen = self._replace(**changes)._asdict().items()
        named = {name: value for name, value in chosen if value != self._field_defaults[name]}
        texts = {
            name: ",".join(value) if isinstance(value, tuple) else value
            for name, value in named.items()
        }
        return "?" + urlencode(texts, safe=",") if texts else ""


def _several(query: QueryParams, name: str, known: Collection[str]) -> tuple[str, ...]:
    """The values of a parameter that may have several: parted by commas, or repeated."""
    texts = [text for value in query.getlist(name) for text in value.split(",")]
    return tuple(dict.fromkeys(parameters.one_of(text, name, known) for text in texts))
