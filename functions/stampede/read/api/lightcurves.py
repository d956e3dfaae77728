"""Routes of a light curve."""

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from stampede.alerts import surveys
from stampede.lookup import response_warnings
from stampede.lookup.as_of import Known, Moment, points_at
from stampede.lookup.errors import BadParameter
from stampede.lookup.lookup import FEW
from stampede.lookup.points import PointFilter
from stampede.read.formats.light_curves import FORMATS, Format, to_votable, with_magnitudes
from stampede.read.service import service_of
from stampede.read.web import parameters
from stampede.read.web.conditional import REVALIDATE, Representation, etag
from stampede.store.runs.reader import Place

MJD = 0.0, 1e6
KEPT_BYTES = 500
"""Memory of a light curve that is kept, besides its bytes."""
MOST_VERSIONS = 4
"""Rows in memory for each point, up to which the event loop itself merges them."""
MEDIA_TYPES = {format.name: format.media_type for format in FORMATS.values()}


async def get_light_curve(request: Request) -> Response:
    """The points of one object, by time: all that are stored, or those known at a time."""
    service = service_of(request)
    object_id = parameters.object_id(request.path_params["object_id"])
    wanted = point_filter(request)
    format, origin = _format(request)
    magnitudes = parameters.flag(request.query_params, "magnitudes")

    def body_of(rows: pa.Table) -> bytes:
        rows = wanted.apply(rows)
        return format.write(with_magnitudes(rows) if magnitudes else rows)

    if moment := asof(request):
        known = await service.run(points_at, service.lookup, object_id, moment)
        body = await service.run(body_of, known.rows)
        return _respond(request, object_id, format, body, etag(body), known)

    curves = service.lookup.light_curves
    places = curves.cached_places(object_id) or []
    # Blocks of rows never change, and one that is read again has another number.
    blocks = [(place.block.number, place.start, place.end) for place in places]
    version = (object_id, *blocks, format.name, origin, magnitudes, wanted)
    found: tuple[bytes, str] | None = service.light_curves.get(version) if places else None
    if found is None:
        rows = curves.rows_at(places) if 0 < _count(places) <= MOST_VERSIONS * FEW else None
        if rows is None:
            body = await service.run(lambda: body_of(curves.of_object(object_id)))
        else:
            body = body_of(rows) if len(rows) <= FEW else await service.run(body_of, rows)
        found = body, etag(body)
        if rows is not None:
            service.light_curves.put(version, found, len(body) + KEPT_BYTES)
    return _respond(request, object_id, format, *found)


def _format(request: Request) -> tuple[Format, str]:
    """The format that the request wants; and the origin, if the bytes depend on it."""
    format = FORMATS[parameters.wanted_format(request, MEDIA_TYPES)]
    if format.name != "votable":
        return format, ""
    origin = service_of(request).access.proxies.origin_of(request)
    return format._replace(write=partial(to_votable, origin=origin)), origin


def _respond(
    request: Request,
    object_id: str,
    format: Format,
    body: bytes,
    tag: str,
    known: Known | None = None,
) -> Response:
    if format.name == "json" and (whole := response_warnings.in_object(body)) is not body:
        body, tag = whole, etag(whole)
    headers = {
        "Vary": "Accept",
        "Content-Disposition": f'inline; filename="{object_id}.{format.extension}"',
    }
    if known and known.alert_id:
        headers["Stampede-As-Of"] = str(known.alert_id)
    light_curve = Representation(tag, format.media_type, headers, REVALIDATE)
    return light_curve.not_modified(request) or light_curve.respond(request, body)


def _count(places: Sequence[Place]) -> int:
    return sum(place.end - place.start for place in places)


def point_filter(request: Request) -> PointFilter:
    """The points that the query parameters name."""
    query = request.query_params
    bands = [band for text in query.getlist("band") for band in text.split(",")]
    known = surveys.bands() if bands else {}
    if not all(band in known for band in bands):
        raise BadParameter("band", f"must be one or more of {', '.join(known)}: {bands!r:.60}")
    return PointFilter(
        bands=tuple(bands),
        forced=parameters.flag(query, "forced"),
        start=parameters.number(query, "start", *MJD),
        end=parameters.number(query, "end", *MJD),
        withdrawn=parameters.flag(query, "withdrawn") or False,
        survey=parameters.survey_or_archive(query),
    )


def asof(request: Request) -> Moment | None:
    """The time in the parameter `asof`: an MJD, or the id of an alert; None if it is absent."""
    text = request.query_params.get("asof")
    if text is None:
        return None
    is_id = text.isascii() and text.isdigit() and int(text[:20]) > MJD[1]
    if is_id or parameters.DETECTION_NAME.fullmatch(text):
        return Moment(alert_id=parameters.alert_id(text, "asof"))
    return Moment(mjd=parameters.number(request.query_params, "asof", *MJD))
