"""Route of an alert's cutouts."""

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import NamedTuple

import isal
import numpy as np
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from stampede.images import fits
from stampede.images.fits import MOST_VALUE
from stampede.images.hdu import Hdu
from stampede.images.npy import npy
from stampede.images.orientation import NO_TURN, Orientation, sky_axes, turn_of
from stampede.images.png import png
from stampede.images.stretch import Stretch
from stampede.images.stretch import limits as value_limits
from stampede.images.tiles import is_tiled
from stampede.lookup.errors import BadParameter
from stampede.lookup.packs.locations import CutoutLocation, of_kind
from stampede.read.service import service_of
from stampede.read.web import parameters
from stampede.read.web.conditional import Representation, etag, preferred
from stampede.runtime import decompression
from stampede.store.parquet import zstd

MAX_SIZE = 1024
MOST_HDU = 99
MOST_UNPACKED = 64 << 10
"""Most bytes that the event loop unpacks, in 0.16 ms; of ZTF 20 KB, 0.05 ms. The way to a thread
and back takes as long."""
VALUES = ("vmin", "vmax")

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


class Limits(StrEnum):
    """Whose pixels decide what is black and what is white: the image's own or the science image's.

    With those of the science image the three cutouts of an alert have one stretch.
    """

    OWN = "own"
    SCIENCE = "science"


class Hdus(StrEnum):
    """Which HDUs of the FITS file: all that the survey sent, or the first image alone."""

    ALL = "all"
    FIRST = "first"


class PngOptions(NamedTuple):
    """How to draw a PNG. The etag depends on the values in this order.

    Attributes
    ----------
    low, high
        Percentiles of the pixels that are black and white.
    black, white
        Values that are black and white instead.
    size
        Pixels of a side; None: as many as the image has.
    hdu
        Number of the HDU; None: the first image.
    """

    kind: Stretch
    low: float | None
    high: float | None
    black: float | None
    white: float | None
    size: int | None
    orient: Orientation
    hdu: int | None
    limits: Limits


async def get_cutout(request: Request) -> Response:
    """One cutout: the FITS file as the survey made it, or a view of it."""
    service, query = service_of(request), request.query_params
    kind = parameters.cutout_kind(request.path_params["kind"])
    view = parameters.choice(query, "format", View, View.FITS)
    hdus = parameters.choice(query, "hdus", Hdus, Hdus.ALL)
    options = _png_options(query)
    found = await locations(request)
    location = of_kind(found, kind)
    model = of_kind(found, "science") if options.limits == Limits.SCIENCE else None
    read_model = None if model is None else partial(service.lookup.images.fits, model)
    cutout, convert = _representation(request, location, view, hdus, options, read_model)
    if not_modified := cutout.not_modified(request):
        return not_modified
    file = await service.quick_images.image(location)
    if file is None:
        body = await service.run(lambda: convert(service.lookup.images.fits(location)))
    elif view == View.FITS and _converts_at_once(file):
        body = convert(file)
    else:  # to draw an image takes milliseconds, and to unpack a large one may
        body = await service.run(convert, file)
    return cutout.respond(request, body)


def _representation(
    request: Request,
    location: CutoutLocation,
    view: View,
    hdus: Hdus,
    options: PngOptions,
    read_model: Callable[[], bytes] | None,
) -> tuple[Representation, Callable[[bytes], bytes]]:
    """What to send, and the function that makes it from the file as sent.

    `read_model` reads the file whose limits a PNG gets.
    """
    name = f"{location.alert_id}-{location.kind}.{view}"
    headers = {"Content-Disposition": f'inline; filename="{name}"'}
    identity = (location.pack, location.page_offset, location.start, view)
    if view == View.PNG:
        tag = etag(*identity, *options)
        image = Representation(tag, "image/png", headers)
        return image, lambda file: _picture(file, location.survey, read_model, options)
    if view == View.NPY:
        number = options.hdu
        tag = etag(*identity) if number is None else etag(*identity, number)
        array = Representation(tag, "application/octet-stream", headers)
        return array, lambda file: npy(_image(file, number)[0])
    headers["Vary"] = "Accept-Encoding"
    if hdus == Hdus.FIRST:
        return Representation(etag(*identity, hdus), "application/fits", headers), fits.trim
    coding = preferred(request.headers.get("accept-encoding", ""), tuple(CODINGS))
    if coding is None:
        return Representation(etag(*identity), "application/fits", headers), fits.unpack
    encode, version = CODINGS[coding]
    headers["Content-Encoding"] = coding
    return Representation(etag(*identity, coding, version), "application/fits", headers), encode


def _converts_at_once(file: bytes) -> bool:
    """Whether the event loop may convert a FITS file: it is not compressed, or unpacks to little.

    A gzip file ends with its unpacked size (RFC 1952). `fits.unpack` bounds one that lies.
    """
    if not decompression.is_gzip(file):
        return b"ZIMAGE  =" not in file  # tile-compressed
    return int.from_bytes(file[-4:], "little") <= MOST_UNPACKED


def _picture(
    file: bytes, survey: str, read_model: Callable[[], bytes] | None, options: PngOptions
) -> bytes:
    """The PNG of an image of a file."""
    image, first = _image(file, options.hdu)
    turn = turn_of(sky_axes(first, survey)) if options.orient == Orientation.NORTH else NO_TURN
    model = image if read_model is None else _image(read_model(), options.hdu)[0]
    lowest, highest = value_limits(model, options.low, options.high, options.kind)
    black = lowest if options.black is None else options.black
    white = highest if options.white is None else options.white
    return png(image, options.kind, size=options.size, turn=turn, within=(black, white))


def _image(file: bytes, number: int | None) -> tuple[np.ndarray, Hdu]:
    """The pixels of the first image, or of the HDU of that number; and the first image's header."""
    image, first = fits.first_image(file)
    if number is None:
        return image, first
    whole = fits.unpack(file)
    hdus = fits.hdus(whole)
    if number >= len(hdus) or not (hdus[number].is_image or is_tiled(hdus[number])):
        raise BadParameter("hdu", f"the file has {len(hdus)} HDUs, and number {number} is no image")
    return fits.pixels_of(whole, hdus[number]), first


async def locations(request: Request) -> list[CutoutLocation]:
    """Where the cutouts of the requested alert are."""
    service = service_of(request)
    alert_id = parameters.alert_id(request.path_params["alert_id"])
    survey = parameters.survey(request.query_params)
    if cached := service.lookup.cached_alert(alert_id, survey):  # see `FEW` there
        return cached
    return await service.run(service.lookup.alert, alert_id, survey)


def _png_options(query: QueryParams) -> PngOptions:
    """What the query asks of a PNG. Raises `BadParameter`."""
    low = parameters.number(query, "min", 0, 100)
    high = parameters.number(query, "max", 0, 100)
    if low is not None and high is not None and low >= high:
        raise BadParameter("min", f"must be less than max: {low:g} is not less than {high:g}")
    black, white = (parameters.number(query, name, -MOST_VALUE, MOST_VALUE) for name in VALUES)
    if black is not None and white is not None and black >= white:
        raise BadParameter("vmin", f"must be less than vmax: {black:g} is not less than {white:g}")
    size = parameters.number(query, "size", 1, MAX_SIZE)
    hdu = parameters.number(query, "hdu", 0, MOST_HDU)
    return PngOptions(
        kind=parameters.choice(query, "stretch", Stretch, Stretch.ASINH),
        low=low,
        high=high,
        black=black,
        white=white,
        size=None if size is None else int(size),
        orient=parameters.choice(query, "orient", Orientation, Orientation.NORTH),
        hdu=None if hdu is None else int(hdu),
        limits=parameters.choice(query, "limits", Limits, Limits.OWN),
    )
