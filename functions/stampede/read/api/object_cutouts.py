"""Route of all cutouts of an object: their files as a stream, or an animated strip of pictures."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from stampede.alerts.columns import KINDS
from stampede.errors import StampedeError
from stampede.images import fits
from stampede.images.animation import AnimationFormat, animate
from stampede.images.orientation import sky_axes, turn_of
from stampede.images.png import drawn, frame
from stampede.lookup import response_warnings
from stampede.lookup.errors import BadParameter, NoSuchCutout
from stampede.lookup.lookup import Lookup
from stampede.lookup.object_alerts import MOST_FRAMES, stored_alerts
from stampede.lookup.packs.images import Absent
from stampede.lookup.packs.locations import CutoutLocation
from stampede.lookup.points import PointFilter
from stampede.read.api import streams
from stampede.read.api.bulk import CUTOUT_WRITERS, stream_of_ids
from stampede.read.api.lightcurves import point_filter
from stampede.read.formats.writers import Cutouts
from stampede.read.service import service_of
from stampede.read.web import parameters
from stampede.read.web.conditional import REVALIDATE, Representation, etag

SIZE, MOST_SIZE = 252, 512
"""Longer side of a strip's pictures in pixels: by default, and at most."""
MEDIA_TYPES = {name: writer().media_type for name, writer in CUTOUT_WRITERS.items()} | {
    animation.value: f"image/{animation}" for animation in AnimationFormat
}


async def get_object_cutouts(request: Request) -> Response:
    """The cutouts of all stored alerts of an object, or of those that the query chooses."""
    service, query = service_of(request), request.query_params
    object_id = parameters.object_id(request.path_params["object_id"])
    kind = parameters.cutout_kind(query["kind"]) if "kind" in query else None
    size = parameters.whole_number(query, "size", 1, MOST_SIZE)
    wanted = point_filter(request)
    format = parameters.wanted_format(request, MEDIA_TYPES)
    animated = format in tuple(AnimationFormat)
    if size and not animated:
        raise BadParameter("size", f"size is for {' and '.join(AnimationFormat)}")
    alerts = await service.run(_alerts, service.lookup, object_id, wanted)
    with ExitStack() as held:
        if animated:
            held.enter_context(service.bulk_limit.slot(request.state.client))
            cutouts = _of_kind(alerts, kind or KINDS[0])
            body = await service.run_bulk(
                _animate, service.bulk_lookup, cutouts, AnimationFormat(format), size or SIZE
            )
            name = f'inline; filename="{object_id}-{kind or KINDS[0]}.{format}"'
            headers = {"Vary": "Accept", "Content-Disposition": name}
            response = Representation(etag(body), MEDIA_TYPES[format], headers, REVALIDATE)
            return response.not_modified(request) or response.respond(request, body)
        lookup = service.bulk_lookup
        ids = np.array(sorted({one[0].alert_id for one in alerts}), np.int64)
        read = partial(_read, lookup, object_id, kind)
        writer = CUTOUT_WRITERS[format]()
        return await stream_of_ids(request, ids, [lookup.cutouts], read, writer, held)


def _alerts(lookup: Lookup, object_id: str, wanted: PointFilter) -> list[list[CutoutLocation]]:
    """The cutouts of the alerts, in time. Raises `UnknownObject`, `NoSuchCutout`."""
    rows = wanted.apply(lookup.light_curves.of_object(object_id))
    alerts = stored_alerts(lookup, object_id, rows)[::-1]
    if not alerts:
        raise NoSuchCutout(f"no alert of object {object_id} with this band and time is stored")
    return alerts


def _read(
    lookup: Lookup, object_id: str, kind: str | None, ids: Sequence[int]
) -> streams.Chunk[Cutouts]:
    chunk = streams.read_cutouts(lookup, ids)
    own = [
        (place, file)
        for place, file in chunk.found
        if place.object_id == object_id and kind in (None, place.kind)
    ]
    return chunk._replace(found=own)


def _of_kind(alerts: Sequence[Sequence[CutoutLocation]], kind: str) -> list[CutoutLocation]:
    """The cutouts of that kind that the survey sent, few enough for a strip."""
    found = [one for alert in alerts for one in alert if one.kind == kind and one.pack]
    if not found:
        raise NoSuchCutout(f"the survey sent no {kind} cutout with these alerts")
    if len(found) > MOST_FRAMES:
        raise BadParameter(
            "format",
            f"a strip has at most {MOST_FRAMES} pictures, and these are {len(found):,}: "
            "choose fewer with start= and end= (MJD) or band=, or take format=tar",
        )
    return found


def _animate(
    lookup: Lookup, cutouts: Sequence[CutoutLocation], animation: AnimationFormat, size: int
) -> bytes:
    """The strip; an image that cannot be drawn is a crossed square, and that is noted."""
    files = dict(lookup.images.many(cutouts))
    return animate([_picture(files[one], one.survey, size) for one in cutouts], animation)


def _picture(file: bytes | Absent, survey: str, size: int) -> np.ndarray:
    if not isinstance(file, Absent):
        try:
            image, first = fits.first_image(file)
            return drawn(image, size=size, turn=turn_of(sky_axes(first, survey)))
        except StampedeError:
            pass
    response_warnings.may_lack("images of this strip are damaged or past their retention")
    return frame(size, crossed=True)
