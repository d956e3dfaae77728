"""Routes of a search by position."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import chain, islice

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from stampede.lookup import response_warnings, sky
from stampede.lookup.cone_search import Cone, Times, first_rows, nearest_first
from stampede.lookup.errors import BadParameter
from stampede.lookup.light_curves import count_detections, leave_uncounted
from stampede.read.api.bulk import SlotResponse
from stampede.read.api.streams import last_bytes, pieces
from stampede.read.formats.completeness import NONE, Completeness
from stampede.read.formats.cone_writers import writers
from stampede.read.formats.writers import Writer
from stampede.read.service import ReadService, ThreadRunner, service_of
from stampede.read.web import parameters
from stampede.read.web.conditional import REVALIDATE, Representation, etag

EXTENSIONS = {"votable": "vot"}
MJD = 0.0, 1e6
SMALL = 60 / sky.ARCSEC
"""Degrees: a larger cone is a large query."""


async def get_cone(request: Request) -> Response:
    """The objects around a position, the nearest first."""
    cone = wanted_cone(request)
    counted = parameters.flag(request.query_params, "counts") is not False
    arcsec = cone.radius * sky.ARCSEC
    format = parameters.wanted_format(request, _media_types())
    head = {"ra": cone.centre.ra, "dec": cone.centre.dec, "radius": arcsec}
    writer = writers(head, service_of(request).access.proxies.origin_of(request))[format]()
    found = objects_around(service_of(request), cone, counted)
    return await respond(request, found, writer, EXTENSIONS.get(format, format))


def objects_around(
    service: ReadService, cone: Cone, counted: bool = True, most: int | None = None
) -> Iterator[pa.Table]:
    """The objects in a cone, rows of `FOUND`, the nearest first; with nulls if not `counted`.

    The light curves of those in a large cone go through the memory of large queries.

    Parameters
    ----------
    most
        Only so many. The light curves of others are not read.
    """
    found = first_rows(nearest_first(service.lookup.positions, cone), most)
    if not counted:
        return leave_uncounted(found)
    lookup = service.lookup if cone.radius <= SMALL else service.bulk_lookup
    return count_detections(found, lookup.light_curves)


@cache
def _media_types() -> dict[str, str]:
    """The media types of the formats: a writer says its own, and takes 0.1 ms to make."""
    return {name: make().media_type for name, make in writers({}).items()}


async def respond(
    request: Request, found: Iterator[pa.Table], writer: Writer, extension: str
) -> Response:
    """What a writer makes of the objects in a cone: whole, or as a stream if they are many.

    Raises `StoreDown`, `TooManyQueries`.
    """
    service = service_of(request)
    first = await service.run(lambda: list(islice(found, 2)))
    headers = {"Vary": "Accept", "Content-Disposition": f'inline; filename="cone.{extension}"'}
    if len(first) < 2:
        body = await service.run(_whole, writer, first)
        whole = Representation(etag(body), writer.media_type, headers, REVALIDATE)
        return whole.not_modified(request) or whole.respond(request, body)
    for table in (service.lookup.positions, service.lookup.detections):
        table.announce_quarantine()
    with ExitStack() as held:
        held.enter_context(service.bulk_limit.slot(request.state.client))
        return SlotResponse(
            held.pop_all(),
            _stream(chain(first, found), service.run_bulk, writer),
            headers={**headers, "Cache-Control": "no-store"},
            media_type=writer.media_type,
        )


def wanted_cone(request: Request, radius: str = "") -> Cone:
    """The cone that the query parameters name, with this radius if they name none.

    Raises `BadParameter`.
    """
    query = {"radius": radius, **request.query_params}
    for name in ("ra", "dec", "radius"):
        if not query.get(name):
            raise BadParameter(name, f"{name} is missing: say for example ?ra=10.5&dec=-5&radius=5")
    centre = sky.place(query["ra"], query["dec"])
    return Cone(centre, sky.radius(query["radius"]), wanted_times(request))


def wanted_times(request: Request) -> Times:
    """The times that the parameters `since` and `nights` name. Raises `BadParameter`."""
    query = request.query_params
    since = parameters.number(query, "since", *MJD)
    if "nights" not in query:
        return Times() if since is None else Times(since)
    first, dash, last = query["nights"].partition("-")
    if not first.isdecimal() or not (last.isdecimal() or not dash) or len(query["nights"]) > 15:
        raise BadParameter("nights", f"must be an MJD or two, as 60310-60320: {first[:40]!r}")
    return Times(max(float(first), since or 0.0), float(last or first) + 1)


def _whole(writer: Writer, tables: list[pa.Table]) -> bytes:
    body = b"".join(writer.add(table) for table in tables)
    return body + writer.end(Completeness(NONE, NONE, response_warnings.incomplete()))


async def _stream(
    found: Iterator[pa.Table], run: ThreadRunner, writer: Writer
) -> AsyncIterator[memoryview]:
    """The bytes of a response; a ring is read while the client takes the one before."""

    def step() -> bytes | None:
        table = next(found, None)
        return None if table is None else writer.add(table)

    ahead = asyncio.ensure_future(run(step))
    try:
        while (data := await ahead) is not None:
            ahead = asyncio.ensure_future(run(step))
            for piece in pieces(data):
                yield piece
    finally:
        ahead.cancel()
    for piece in pieces(
        await run(last_bytes, writer, Completeness(NONE, NONE, response_warnings.incomplete()))
    ):
        yield piece
