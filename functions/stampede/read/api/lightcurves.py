"""Routes of a light curve."""

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from stampede.lookup import response_warnings
from stampede.lookup.errors import BadParameter
from stampede.lookup.lookup import FEW
from stampede.lookup.points import BANDS, PointFilter
from stampede.read.formats.light_curves import FORMATS, with_magnitudes
from stampede.read.service import service_of
from stampede.read.web import parameters
from stampede.read.web.conditional import REVALIDATE, Representation, etag

MJD = 0.0, 1e6
MEDIA_TYPES = {format.name: format.media_type for format in FORMATS.values()}


async def get_light_curve(request: Request) -> Response:
    """The points of one object, by time."""
    service = service_of(request)
    object_id = parameters.object_id(request.path_params["object_id"])
    wanted = point_filter(request)
    format = FORMATS[parameters.wanted_format(request, MEDIA_TYPES)]
    magnitudes = parameters.flag(request.query_params, "magnitudes")

    def body_of(rows: pa.Table) -> bytes:
        rows = wanted.apply(rows)
        return format.write(with_magnitudes(rows) if magnitudes else rows)

    cached = service.lookup.light_curves.cached(object_id)
    if cached is not None and len(cached) <= FEW:
        body = body_of(cached)
    else:
        body = await service.run(lambda: body_of(service.lookup.light_curves.of_object(object_id)))
    if format.name == "json":
        body = response_warnings.in_object(body)
    headers = {
        "Vary": "Accept",
        "Content-Disposition": f'inline; filename="{object_id}.{format.extension}"',
    }
    light_curve = Representation(etag(body), format.media_type, headers, REVALIDATE)
    return light_curve.not_modified(request) or light_curve.respond(request, body)


def point_filter(request: Request) -> PointFilter:
    """The points that the query parameters name."""
    query = request.query_params
    bands = [band for text in query.getlist("band") for band in text.split(",")]
    if not all(band in BANDS and len(band) == 1 for band in bands):
        raise BadParameter("band", f"must be one or more of {', '.join(BANDS)}: {bands!r:.60}")
    return PointFilter(
        bands=bands,
        forced=parameters.flag(query, "forced"),
        start=parameters.number(query, "start", *MJD),
        end=parameters.number(query, "end", *MJD),
        withdrawn=parameters.flag(query, "withdrawn") or False,
    )
