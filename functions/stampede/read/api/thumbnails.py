"""Route of an alert's thumbnail."""

from starlette.requests import Request
from starlette.responses import Response

from stampede.read.service import service_of
from stampede.read.web import parameters
from stampede.read.web.conditional import Representation, etag


async def get_thumbnail(request: Request) -> Response:
    """The cutouts of an alert side by side, as the function `thumbnails` has drawn them."""
    service = service_of(request)
    alert_id = parameters.alert_id(request.path_params["alert_id"])
    survey = parameters.survey(request.query_params)
    location = await service.run(service.lookup.thumbnail, alert_id, survey)
    headers = {"Content-Disposition": f'inline; filename="{alert_id}.png"'}
    thumbnail = Representation(etag(location.pack, location.offset), "image/png", headers)
    if not_modified := thumbnail.not_modified(request):
        return not_modified
    image = await service.quick_images.image(location)
    if image is None:
        image = await service.run(service.lookup.images.image, location)
    return thumbnail.respond(request, image)
