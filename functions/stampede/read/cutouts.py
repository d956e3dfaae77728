"""Route of an alert's cutouts."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import isal
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from stampede.images import fits
from stampede.images.npy import npy
from stampede.images.orientation import NO_TURN, Orientation, sky_axes, turn_of
from stampede.images.png import png
from stampede.images.stretch import Stretch
from stampede.read import parameters
from stampede.read.conditional import Representation, etag, preferred
from stampede.read.errors import BadParameter
from stampede.read.locations import CutoutLocation, of_kind
from stampede.read.service import service_of
from stampede.store import zstd

MAX_SIZE = 1024

# Content codings, the preferred one first, each with the version of the library that determines its
# bytes. gzip comes first because ZTF's files are gzipped as sent.
CODINGS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "gzip": (fits.gzip_file, isal.__version__),
    "zstd": (lambda file: zstd.compress(fits.unpack(file)), zstd.VERSION),
}


class View(StrEnum):
    """The formats of a cutout."""

    FITS = "fits"
    PNG = "png"
    NPY = "npy"


class Hdus(StrEnum):
    """Which HDUs of the FITS file: all that the survey sent, or the first image alone."""

    ALL = "all"
    FIRST = "first"


async def get_cutout(request: Request) -> Response:
    """One cutout: the FITS file as the survey made it, or a view of it."""
    service, query = service_of(request), request.query_params
    kind = parameters.cutout_kind(request.path_params["kind"])
    view = parameters.choice(query, "format", View, View.FITS)
    hdus = parameters.choice(query, "hdus", Hdus, Hdus.ALL)
    options = _png_options(query)
    location = of_kind(await locations(request), kind)
    cutout, convert = _representation(request, location, view, hdus, options)
    if not_modified := cutout.not_modified(request):
        return not_modified
    file = await service.quick_images.image(location)
    if file is None:
        body = await service.run(lambda: convert(service.lookup.images.fits(location)))
    elif view == View.FITS and not fits.is_gzip(file):
        body = convert(file)
    else:  # to draw an image takes milliseconds, and to unpack one may
        body = await service.run(convert, file)
    return cutout.respond(request, body)


def _representation(
    request: Request, location: CutoutLocation, view: View, hdus: Hdus, options: dict[str, Any]
) -> tuple[Representation, Callable[[bytes], bytes]]:
    """What to send, and the function that makes it from the file as sent."""
    name = f"{location.alert_id}-{location.kind}.{view}"
    headers = {"Content-Disposition": f'inline; filename="{name}"'}
    identity = (location.pack, location.page_offset, location.start, view)
    if view == View.PNG:
        tag = etag(*identity, *options.values())
        image = Representation(tag, "image/png", headers)
        return image, lambda file: _picture(file, location.survey, **options)
    if view == View.NPY:
        array = Representation(etag(*identity), "application/octet-stream", headers)
        return array, lambda file: npy(fits.image(file))
    headers["Vary"] = "Accept-Encoding"
    if hdus == Hdus.FIRST:
        return Representation(etag(*identity, hdus), "application/fits", headers), fits.trim
    coding = preferred(request.headers.get("accept-encoding", ""), CODINGS)
    if coding is None:
        return Representation(etag(*identity), "application/fits", headers), fits.unpack
    encode, version = CODINGS[coding]
    headers["Content-Encoding"] = coding
    return Representation(etag(*identity, coding, version), "application/fits", headers), encode


def _picture(file: bytes, survey: str, orient: Orientation, **options: Any) -> bytes:
    """The PNG of the first image of a file."""
    image, hdu = fits.first_image(file)
    north = orient == Orientation.NORTH
    return png(image, turn=turn_of(sky_axes(hdu, survey)) if north else NO_TURN, **options)


async def locations(request: Request) -> list[CutoutLocation]:
    """Where the cutouts of the requested alert are."""
    service = service_of(request)
    alert_id = parameters.alert_id(request.path_params["alert_id"])
    survey = parameters.survey(request.query_params)
    if cached := service.lookup.cached_alert(alert_id, survey):  # see `lookup.FEW`
        return cached
    return await service.run(service.lookup.alert, alert_id, survey)


def _png_options(query: QueryParams) -> dict[str, Any]:
    """The arguments of `_picture`."""
    low = parameters.number(query, "min", 0, 100)
    high = parameters.number(query, "max", 0, 100)
    if low is not None and high is not None and low >= high:
        raise BadParameter("min", f"must be less than max: {low:g} is not less than {high:g}")
    size = parameters.number(query, "size", 1, MAX_SIZE)
    return {
        "kind": parameters.choice(query, "stretch", Stretch, Stretch.ASINH),
        "low": low,
        "high": high,
        "size": None if size is None else int(size),
        "orient": parameters.choice(query, "orient", Orientation, Orientation.NORTH),
    }
