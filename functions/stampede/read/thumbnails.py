"""Route of the ready-made picture of an alert."""

from starlette.requests import Request
from starlette.responses import Response

from stampede.read import parameters
from stampede.read.conditional import Representation, etag
from stampede.read.cutouts import survey_of
from stampede.read.lookup import Lookup


async def get_thumbnail(request: Request) -> Response:
    """The cutouts of an alert side by side, as `thumbnails` has drawn them."""
    lookup: Lookup = request.app.state.lookup
    run = request.app.state.small
    alert = parameters.alert_id(request.path_params["alert_id"])
    place = await run(lookup.thumbnail, alert, survey_of(request))
    headers = {"Content-Disposition": f'inline; filename="{alert}.png"'}
    form = Representation(etag(place.pack, place.offset), "image/png", headers)
    if known := form.known(request):
        return known
    return form.answer(request, await run(lookup.png, place))
