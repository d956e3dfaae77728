"""Route of the page of a body of the solar system: its light curve, its path, its cutouts."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from stampede.alerts.moving.designations import path_form
from stampede.lookup.lookup import Lookup
from stampede.lookup.points import NO_BAND, bands_of
from stampede.read.formats.light_curves import FORMATS
from stampede.read.moving.observations import observations, wanted_designation
from stampede.read.pages import page as pages
from stampede.read.pages.object_choices import OTHER_AXIS, Choices
from stampede.read.pages.page import ShownAlert, part_of
from stampede.read.plots import light_curve as plot
from stampede.read.plots.light_curve import Axis, Quantity, light_curve_svg
from stampede.read.plots.numbers import measured
from stampede.read.plots.phase_curve import phase_curve_svg
from stampede.read.plots.sky_plot import sky_path_svg
from stampede.read.plots.ticks import date_of
from stampede.read.service import service_of

ALERTS, ROWS = 12, 50
"""Most cutouts and rows on a page."""


class ShownObservation(NamedTuple):
    """A row of the table of observations; `value` and `error` are texts, in the plot's unit."""

    mjd: float
    band: str
    value: str
    error: str
    phase_angle: float | None
    helio_distance: float | None
    topo_distance: float | None
    ra: float | None
    dec: float | None
    alert_id: int
    href: str


async def moving_page(request: Request) -> Response:
    """`/moving/{designation}`: one body of the solar system."""
    service = service_of(request)
    name, choices = wanted_designation(request), Choices.of(request.query_params)
    text = await service.run(_page, service.lookup, name, choices)
    return pages.html(text, pages.WITH_SCRIPT)


def _page(lookup: Lookup, name: str, choices: Choices) -> str:
    rows = observations(lookup, name)
    part, some = part_of(rows["alert_id"].to_pylist()[::-1], choices.page or 1, ALERTS)
    found = lookup.by_alert(some)
    thumbnails = {(one.alert_id, one.survey) for one in lookup.thumbnail_locations(some)}
    keys = zip(rows["alert_id"].to_pylist(), rows["survey"].to_pylist(), strict=True)
    bands = dict(zip(keys, bands_of(rows).tolist(), strict=True))
    shown = sorted(found.values(), key=lambda locations: -locations[0].mjd)
    alerts = [
        ShownAlert.of(one, bands.get((one[0].alert_id, one[0].survey), NO_BAND), thumbnails)
        for one in shown
        if (one[0].alert_id, one[0].survey) in bands
    ]
    designation = rows["designation"][0].as_py()
    curve, hrefs, quantity = as_light_curve(rows), _hrefs(rows), Quantity(choices.axis)
    points, numbers = part_of(np.arange(len(rows))[::-1], choices.points, ROWS)
    return pages.page(
        "moving.html",
        designation=designation,
        url=f"/moving/{quote(path_form(designation))}",
        api=f"/v1/moving/{quote(path_form(designation))}",
        surveys=sorted({*rows["survey"].to_pylist()}),
        facts=_facts(rows),
        choices=choices,
        other_axis=OTHER_AXIS[choices.axis],
        quantity=quantity,
        plot=light_curve_svg(curve, quantity, dict(enumerate(hrefs))),
        phase_curve=phase_curve_svg(curve, dict(enumerate(hrefs))),
        path=_path(rows, hrefs),
        alerts=alerts,
        part=part,
        points=points,
        rows=_shown(curve, quantity, hrefs, numbers),
        links=links_of_body(designation),
        formats=FORMATS.values(),
    )


def as_light_curve(rows: pa.Table) -> pa.Table:
    """Rows of `MOVING` with the columns of a light curve that tell the kind of a point."""
    no = pa.array(np.zeros(len(rows), bool))
    return rows.append_column("forced", no).append_column("limit", no)


def links_of_body(designation: str) -> dict[str, str]:
    """Pages of other services about a body, by their names."""
    name = quote(designation, safe="")
    return {
        "Minor Planet Center": "https://minorplanetcenter.net/db_search/show_object"
        f"?object_id={name}",
        "JPL Small-Body Database": f"https://ssd.jpl.nasa.gov/tools/sbdb_lookup.html#/?sstr={name}",
        "SsODNet": f"https://ssp.imcce.fr/forms/ssocard/{name}",
    }


def _hrefs(rows: pa.Table) -> list[str]:
    names = (rows[name].to_pylist() for name in ("alert_id", "survey"))
    return [f"/alerts/{alert_id}?survey={survey}" for alert_id, survey in zip(*names, strict=True)]


def _shown(
    curve: pa.Table, quantity: Quantity, hrefs: Sequence[str], numbers: np.ndarray
) -> list[ShownObservation]:
    value, error, _, _ = plot.values(curve, quantity)
    bands = bands_of(curve)
    names = ("mjd", "phase_angle", "helio_distance", "topo_distance", "ra", "dec", "alert_id")
    some = curve.select(names).take(pa.array(numbers, pa.int64())).to_pylist()
    shown = []
    for number, row in zip(numbers.tolist(), some, strict=True):
        text, sigma = measured(value[number], error[number], quantity.axis == Axis.MAG)
        own = {"band": str(bands[number]), "value": text, "error": sigma, "href": hrefs[number]}
        shown.append(ShownObservation(**row, **own))
    return shown


def _facts(rows: pa.Table) -> dict[str, str]:
    facts = {
        "observations": f"{len(rows):,}",
        "first": date_of(rows["mjd"][0].as_py()),
        "last": date_of(rows["mjd"][-1].as_py()),
    }
    ranges = {
        "phase angle": ("phase_angle", "°"),
        "distance from the Sun": ("helio_distance", " au"),
        "distance from the observer": ("topo_distance", " au"),
    }
    for text, (name, unit) in ranges.items():
        known = rows[name].drop_null().to_pylist()
        if known:
            low, high = (f"{value:.3g}" for value in (min(known), max(known)))
            facts[text] = f"{low}{unit}" if low == high else f"{low} to {high}{unit}"
    objects = len({*rows["object_id"].to_pylist()})
    if objects > 1:
        facts["objects of the survey"] = f"{objects:,}"
    return facts


def _path(rows: pa.Table, hrefs: Sequence[str]) -> str:
    ra, dec = (rows[name].to_numpy(zero_copy_only=False).astype(float) for name in ("ra", "dec"))
    return sky_path_svg(ra, dec, [*map(date_of, rows["mjd"].to_pylist())], hrefs)
