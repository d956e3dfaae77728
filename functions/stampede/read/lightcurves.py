"""Routes of a light curve."""

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from stampede.read import parameters
from stampede.read.conditional import ASK_AGAIN, Representation, etag
from stampede.read.formats import FORMATS, with_magnitudes
from stampede.read.lookup import Lookup, select
from stampede.read.problems import BadParameter

BANDS = "ugrizy"
MJD = 0.0, 1e6
FEW = 500
"""Points that are answered at once where they are in memory: a thread would but fight for the
interpreter, with the others and with the loop that waits for it."""
MEDIA_TYPES = {format.name: format.media_type for format in FORMATS.values()}


async def get_light_curve(request: Request) -> Response:
    """The points of one object, in time."""
    lookup: Lookup = request.app.state.lookup
    identity = parameters.object_id(request.path_params["object_id"])
    wanted = wanted_points(request)
    format = FORMATS[parameters.wanted_format(request, MEDIA_TYPES)]
    magnitudes = parameters.flag(request.query_params, "magnitudes")

    def written(rows: pa.Table) -> bytes:
        rows = select(rows, **wanted)
        return format.write(with_magnitudes(rows) if magnitudes else rows)

    kept = lookup.kept_light_curve(identity)
    if kept is not None and len(kept) <= FEW:
        body = written(kept)
    else:
        body = await request.app.state.small(lambda: written(lookup.light_curve(identity)))
    headers = {
        "Vary": "Accept",
        "Content-Disposition": f'inline; filename="{identity}.{format.extension}"',
    }
    form = Representation(etag(body), format.media_type, headers, ASK_AGAIN)
    return form.known(request) or form.answer(request, body)


def wanted_points(request: Request) -> dict:
    """Which points: the parameters of `stampede.read.lookup.select`."""
    query = request.query_params
    bands = [band for text in query.getlist("band") for band in text.split(",")]
    if not all(band in BANDS and len(band) == 1 for band in bands):
        raise BadParameter("band", f"must be some of {', '.join(BANDS)}: {bands!r:.60}")
    return {
        "bands": bands,
        "forced": parameters.flag(query, "forced"),
        "start": parameters.number(query, "start", *MJD),
        "end": parameters.number(query, "end", *MJD),
        "withdrawn": parameters.flag(query, "withdrawn") or False,
    }
