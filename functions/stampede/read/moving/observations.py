"""Route of the observations of a body of the solar system."""

from collections.abc import Callable
from functools import partial

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from stampede.alerts.columns import MOVING
from stampede.alerts.moving.designations import MOST, path_form, standard_form
from stampede.lookup.errors import BadParameter, UnknownObject
from stampede.lookup.lookup import Lookup
from stampede.lookup.points import PointFilter
from stampede.read.api.lightcurves import MEDIA_TYPES, point_filter
from stampede.read.formats import datalink, votable
from stampede.read.formats.light_curves import FORMATS, MOVING_UCDS, json_of, with_magnitudes
from stampede.read.service import service_of
from stampede.read.web import parameters
from stampede.read.web.conditional import REVALIDATE, Representation, etag
from stampede.runtime import lazy_arrow_compute as pc

PARAMETERS = ("format", "responseformat", "survey", "band", "start", "end", "magnitudes")


async def get_observations(request: Request) -> Response:
    """The observations of one body, by time."""
    service = service_of(request)
    name = wanted_designation(request)
    survey, wanted = parameters.survey(request.query_params), point_filter(request)
    magnitudes = parameters.flag(request.query_params, "magnitudes")
    format = FORMATS[parameters.wanted_format(request, MEDIA_TYPES)]
    write = _writers(service.access.proxies.origin_of(request)).get(format.name, format.write)

    def body_of() -> tuple[str, bytes]:
        rows = observations(service.lookup, name)
        found = path_form(rows["designation"][0].as_py())
        rows = chosen(rows, survey, wanted)
        return found, write(with_magnitudes(rows) if magnitudes else rows)

    found, body = await service.run(body_of)
    headers = {
        "Vary": "Accept",
        "Content-Disposition": f'inline; filename="{found}.{format.extension}"',
    }
    whole = Representation(etag(body), format.media_type, headers, REVALIDATE)
    return whole.not_modified(request) or whole.respond(request, body)


def wanted_designation(request: Request) -> str:
    """The designation in the path. Raises `BadParameter`."""
    name: str = request.path_params["designation"]
    if not name.strip() or len(name) > MOST or not name.isprintable():
        raise BadParameter(
            "designation",
            "say which body, by its number or its designation, as 45685, 2011 UW158 or C_2017_K2: "
            f"{name[:MOST]!r}",
        )
    return name


def observations(lookup: Lookup, designation: str) -> pa.Table:
    """What alerts show of a body of the solar system: rows of `columns.MOVING`, by time.

    `designation` may have any form. Raises `UnknownObject`.
    """
    name = standard_form(designation)
    rows = lookup.moving.lookup([name])
    if not rows.num_rows:
        raise UnknownObject(f"no alert of the body {name[:MOST]!r} is stored")
    return rows.sort_by([("mjd", "ascending"), ("alert_id", "ascending")])


def chosen(rows: pa.Table, survey: str | None, wanted: PointFilter) -> pa.Table:
    """The rows of `MOVING` of this survey that pass the filter."""
    rows = wanted._replace(withdrawn=True).apply(rows)
    return rows if survey is None else rows.filter(pc.equal(rows["survey"], survey))


def _writers(origin: str) -> dict[str, Callable[[pa.Table], bytes]]:
    """The formats that are not written as a light curve is."""
    return {
        "json": partial(json_of, of_all=["designation"], member="observations"),
        "votable": partial(_to_votable, origin),
    }


def _to_votable(origin: str, rows: pa.Table) -> bytes:
    services = datalink.services_of_alerts(origin, "alert_id")
    schema = rows.schema if rows.num_columns > len(MOVING) else MOVING
    writer = votable.VOTableWriter("observations", schema, MOVING_UCDS, services=services)
    return writer.add(rows) + writer.end()
