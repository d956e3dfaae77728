"""Route of the page of an object: its light curve, its alerts, its points."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlencode

import numpy as np
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from stampede.alerts import surveys
from stampede.alerts.columns import KINDS
from stampede.lookup.errors import UnknownObject
from stampede.lookup.lookup import Lookup
from stampede.lookup.object_alerts import MOST_FRAMES, stored_alerts
from stampede.lookup.points import NO_BAND, PointFilter, PointKind, bands_of, kinds_of
from stampede.read.formats.light_curves import FORMATS
from stampede.read.pages import page as pages
from stampede.read.pages.external_links import links
from stampede.read.pages.object_choices import OTHER_AXIS, Choices
from stampede.read.pages.page import Part, ShownAlert, part_of, position_of
from stampede.read.pages.surroundings import Fact, surroundings
from stampede.read.plots import light_curve as plot
from stampede.read.plots.light_curve import Axis, Flux, Fold, Quantity, light_curve_svg
from stampede.read.plots.numbers import measured
from stampede.read.plots.ticks import date_of
from stampede.read.plots.value_range import Fit
from stampede.read.service import service_of
from stampede.read.web import parameters
from stampede.runtime import lazy_arrow_compute as pc

ALERTS, POINTS = 12, 50
"""Most alerts and points on a page."""
NEAR = "60"
"""Arcseconds around an object within which another one is near."""
PLACES = "last position (ICRS)", "in hours and degrees"
OTHER_FIT = {Fit.BULK: Fit.ALL, Fit.ALL: Fit.BULK}
OTHER_FLUX = {Flux.DIFFERENCE: Flux.TOTAL, Flux.TOTAL: Flux.DIFFERENCE}
WHERE_TOTAL = (
    "Where the survey sends no total flux, it takes a difference flux and a source of the "
    "reference image at the object's place."
)
KIND_NAMES = {
    PointKind.DETECTION: "detection",
    PointKind.FORCED: "forced photometry",
    PointKind.LIMIT: "5σ limit",
}

Key = tuple[int, str]
"""Id and survey of an alert."""


class FromAlerts(NamedTuple):
    """What the stored alerts of an object say.

    Attributes
    ----------
    strip_start
        MJD of the first alert that fits into a strip; None if all fit.
    surroundings
        What the latest one says of the object's surroundings.
    """

    strip_start: float | None = None
    surroundings: Sequence[Fact] = ()


NOTHING_MORE = FromAlerts()


class ShownPoint(NamedTuple):
    """A row of the table of points; `value` and `error` are texts, in the unit of the plot.

    `is_limit` if the value is a limit, because the point is one or is too faint for a magnitude.
    """

    mjd: float
    band: str
    kind: str
    value: str
    error: str
    is_limit: bool
    reliability: float | None
    source_id: int | None
    moved: bool | None
    href: str | None


class Curve(NamedTuple):
    """A light curve by time, and of its rows: kinds, bands, and the pages of stored alerts.

    `kinds` and `bands` have the shape (rows,); `hrefs` are by row.
    """

    detections: pa.Table
    kinds: np.ndarray
    bands: np.ndarray
    hrefs: dict[int, str]

    @classmethod
    def of(cls, detections: pa.Table, stored: set[Key]) -> Self:
        """The curve of these detections, of which the alerts `stored` have a page."""
        kinds = kinds_of(detections)
        return cls(detections, kinds, bands_of(detections), _hrefs(detections, kinds, stored))

    def chosen(self, choices: Choices) -> np.ndarray:
        """Whether the choices show each row, shape (rows,)."""
        of_bands = np.isin(self.bands, choices.bands) | (not choices.bands)
        return of_bands & (np.isin(self.kinds, choices.kinds) | (not choices.kinds))

    def shown(self, rows: np.ndarray, quantity: Quantity) -> list[ShownPoint]:
        """The table of these rows."""
        value, error, faint, _ = plot.values(self.detections, quantity)
        is_limit = faint | (self.kinds == PointKind.LIMIT)
        some = self.detections.take(pa.array(rows, pa.int64()))
        names = ("mjd", "reliability", "source_id", "moved")
        columns = (some[name].to_pylist() for name in names)
        return [
            ShownPoint(
                mjd,
                str(self.bands[row]),
                str(self.kinds[row]),
                *measured(value[row], error[row], quantity.axis == Axis.MAG),
                bool(is_limit[row]),
                reliability,
                source_id,
                moved,
                self.hrefs.get(row),
            )
            for row, mjd, reliability, source_id, moved in zip(rows.tolist(), *columns, strict=True)
        ]


async def object_page(request: Request) -> Response:
    """`/objects/{id}`: the light curve, the alerts and the points of one object."""
    service = service_of(request)
    object_id = parameters.object_id(request.path_params["object_id"])
    choices = Choices.of(request.query_params)
    text = await service.run(_page, service.lookup, object_id, choices)
    return pages.html(text, pages.WITH_SCRIPT)


def _page(lookup: Lookup, object_id: str, choices: Choices) -> str:
    detections = PointFilter().apply(lookup.light_curves.of_object(object_id))
    if not detections.num_rows:
        raise UnknownObject(f"the survey has withdrawn every detection of object {object_id}")
    stored = stored_alerts(lookup, object_id, detections, choices.alert)
    ids = [locations[0].alert_id for locations in stored]
    if choices.page is None and choices.alert in ids:
        choices = choices._replace(page=1 + ids.index(choices.alert) // ALERTS)
    part, some = part_of(stored, choices.page or 1, ALERTS)
    on_page = [locations[0].alert_id for locations in some]
    thumbnails = {(one.alert_id, one.survey) for one in lookup.thumbnail_locations(on_page)}
    bands = dict(zip(detections["source_id"].to_pylist(), bands_of(detections), strict=True))
    shown = [
        ShownAlert.of(one, str(bands.get(one[0].alert_id, NO_BAND)), thumbnails, choices.alert)
        for one in some
    ]
    keys = {(locations[0].alert_id, locations[0].survey) for locations in stored}
    strip_start = stored[MOST_FRAMES - 1][0].mjd if len(stored) > MOST_FRAMES else None
    said = surroundings(lookup, stored[0][0]) if stored else []
    more = FromAlerts(strip_start, said)
    return render(object_id, detections, choices, keys, shown, part, more)


def render(
    object_id: str,
    detections: pa.Table,
    choices: Choices,
    stored: set[Key],
    alerts: Sequence[ShownAlert],
    part: Part,
    more: FromAlerts = NOTHING_MORE,
) -> str:
    """The page of one object.

    Parameters
    ----------
    detections
        Its light curve by time, at least one row.
    stored
        The alerts that are stored: the others have no page.
    alerts, part
        The alerts to show, and which of all they are.
    more
        What else its alerts say.
    """
    curve = Curve.of(detections, stored)
    chosen, fold = curve.chosen(choices), _fold(detections, choices)
    points, rows = part_of(np.flatnonzero(chosen)[::-1], choices.points, POINTS)
    quantity = Quantity(choices.axis, choices.flux or _usual_flux(detections))
    values = plot.values(detections, quantity)
    survey, *others = _surveys_of(detections)
    name = quote(object_id, safe="")
    return pages.page(
        "object.html",
        object_id=object_id,
        url=f"/objects/{name}",
        api=f"/v1/objects/{name}",
        survey=" and ".join(name.upper() for name in (survey, *others)),
        facts=_facts(detections, curve.kinds),
        bands=[band for band in (*surveys.bands(), NO_BAND) if band in curve.bands],
        kinds_of_points=_kinds(curve, values),
        choices=choices,
        plot=light_curve_svg(detections, quantity, curve.hrefs, chosen, fold, choices.fit),
        notes=_notes(values, quantity),
        outside=plot.count_outside(detections, quantity, chosen),
        fold=fold,
        **_quantities(detections, choices, quantity),
        alerts=alerts,
        part=part,
        strips=[kind for kind in KINDS if any(kind in alert.sent for alert in alerts)],
        **more._asdict(),
        rows=curve.shown(rows, quantity),
        points=points,
        **_leads(object_id, survey, detections),
        formats=FORMATS.values(),
    )


def _kinds(curve: Curve, values: plot.Values) -> dict[str, str]:
    """The kinds of points in the plot, with their names."""
    kinds = {*curve.kinds, *([PointKind.LIMIT] if values.faint.any() else [])}
    return {kind: text for kind, text in KIND_NAMES.items() if kind in kinds}


def _usual_flux(detections: pa.Table) -> Flux:
    """The flux that is shown unless another is chosen: the total one where it is the only one."""
    has_difference = any(_has(detections, name) for name in ("flux", "flux_err"))
    is_total = _has(detections, "total_flux") and not has_difference
    return Flux.TOTAL if is_total else Flux.DIFFERENCE


def _surveys_of(detections: pa.Table) -> list[str]:
    """The surveys of the points, those that send alerts before archives."""
    names = detections["survey"].unique().to_pylist()
    return sorted(names, key=lambda name: (name not in surveys.names(), name))


def _has(detections: pa.Table, name: str) -> bool:
    return bool(detections[name].null_count < detections.num_rows)


def _quantities(detections: pa.Table, choices: Choices, quantity: Quantity) -> dict[str, Any]:
    """What the plot shows, and may show instead: no other flux if no point has one."""
    flux, usual = quantity.flux, _usual_flux(detections)
    has_other = _has(detections, "flux" if flux == Flux.TOTAL else "total_flux")
    return {
        "quantity": quantity,
        "column": "total_flux" if usual == Flux.TOTAL else "flux",
        "other_axis": OTHER_AXIS[choices.axis],
        "other_flux": OTHER_FLUX[flux] if has_other or flux != usual else None,
        "usual_flux": usual,
        "other_fit": OTHER_FIT[choices.fit],
    }


def _notes(values: plot.Values, quantity: Quantity) -> list[str]:
    """What a reader of the plot must know of the points that it does not show as measured."""
    absent = ~np.isfinite(values.y)
    negative = absent & values.negative
    of_difference = absent & (values.error == 0) & (quantity.flux == Flux.TOTAL)
    missing = absent & ~negative & ~of_difference
    what = quantity.name.partition(" (")[0].lower()
    counts = {
        f"below {plot.LEAST_SNR:g}σ: the 5σ limit is drawn": ("point", values.faint),
        f"of negative {quantity.flux} flux, which has no magnitude": ("point", negative),
        "of the difference flux alone": ("limit", of_difference),
        f"without a {what}": ("point", missing),
    }
    notes = [
        f"{n:,} {kind}{'s' if n > 1 else ''} {text}."
        for text, (kind, rows) in counts.items()
        if (n := int(rows.sum()))
    ]
    return [*notes, WHERE_TOTAL] if quantity.flux == Flux.TOTAL and missing.any() else notes


def _fold(detections: pa.Table, choices: Choices) -> Fold | None:
    """The chosen period, from the chosen epoch or the first point on."""
    if choices.period is None:
        return None
    first = detections["mjd"][0].as_py()
    return Fold(choices.period, first if choices.epoch is None else choices.epoch)


def _hrefs(detections: pa.Table, kinds: np.ndarray, stored: set[Key]) -> dict[int, str]:
    """The pages of the stored alerts, by the rows of their detections."""
    ids, surveys = (detections[name].to_pylist() for name in ("source_id", "survey"))
    return {
        row: f"/alerts/{ids[row]}?survey={surveys[row]}"
        for row in np.flatnonzero(kinds == PointKind.DETECTION).tolist()
        if (ids[row], surveys[row]) in stored
    }


def _leads(object_id: str, survey: str, detections: pa.Table) -> dict[str, Any]:
    """What leads from the object's last position elsewhere; `near` is empty if none is known."""
    near, position = "", position_of(detections)
    if position is not None:
        query = {"ra": f"{position[0]:.6f}", "dec": f"{position[1]:.6f}", "radius": NEAR}
        near = f"/cone?{urlencode(query)}"
    return {"near": near, "links": links(object_id, survey, detections), "places": PLACES}


def _facts(detections: pa.Table, kinds: np.ndarray) -> dict[str, str]:
    facts = {
        {"detection": "detections", "forced": "forced points", "limit": "limits"}[kind]: f"{n:,}"
        for kind in PointKind
        if (n := int((kinds == kind).sum())) or kind == PointKind.DETECTION
    }
    if moved := pc.sum(detections["moved"]).as_py():
        facts["moved to another object"] = f"{moved:,}"
    if position := position_of(detections):
        texts = ("{:.6f}° {:+.6f}°".format(*position), pages.sexagesimal(*position))
        facts |= dict(zip(PLACES, texts, strict=True))
    seen = detections["mjd"].to_numpy()[kinds == PointKind.DETECTION]
    if not len(seen):
        return facts
    return facts | {"first detected": date_of(seen[0]), "last detected": date_of(seen[-1])}
