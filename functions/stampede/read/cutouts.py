"""Routes of an alert and its cutouts."""

from collections.abc import Callable
from enum import StrEnum

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stampede.alerts.surveys import names
from stampede.images import fits
from stampede.images.npy import npy
from stampede.images.png import png
from stampede.images.stretch import Stretch
from stampede.read import parameters
from stampede.read.conditional import FOR_EVER, Representation, etag, preferred
from stampede.read.lookup import CutoutLocation, Lookup, sent
from stampede.read.problems import BadParameter

MAX_SIZE = 1024


class Kind(StrEnum):
    """Which image of an alert."""

    SCIENCE = "science"
    TEMPLATE = "template"
    DIFFERENCE = "difference"


class View(StrEnum):
    """How a cutout is given."""

    FITS = "fits"
    PNG = "png"
    NPY = "npy"


class Hdus(StrEnum):
    """Which parts of the FITS file: all that the survey sent, or the first image alone."""

    ALL = "all"
    FIRST = "first"


def survey_of(request: Request) -> str | None:
    """The parameter `survey`; None if it is not given."""
    name = request.query_params.get("survey")
    if name is None or name in names():
        return name
    raise BadParameter("survey", f"must be one of {', '.join(names())}: {name[:40]!r}")


async def get_cutout(request: Request) -> Response:
    """One cutout: FITS as the survey made it, or a view of it."""
    query, run = request.query_params, request.app.state.small
    lookup: Lookup = request.app.state.lookup
    kind = _kind(request.path_params["kind"])
    view = parameters.choice(query, "format", View, View.FITS)
    hdus = parameters.choice(query, "hdus", Hdus, Hdus.ALL)
    look = _look(request)
    place = sent(await _places(request), kind)
    form, make = _form(request, place, view, hdus, look)
    if known := form.known(request):
        return known
    return form.answer(request, await run(lambda: make(lookup.fits(place))))


def _form(
    request: Request, place: CutoutLocation, view: View, hdus: Hdus, look: dict
) -> tuple[Representation, Callable[[bytes], bytes]]:
    """What is to be sent, and how it is made of the stored gzip file."""
    headers = {"Content-Disposition": f'inline; filename="{place.alert_id}-{place.kind}.{view}"'}
    identity = (place.pack, place.offset, view)
    if view == View.PNG:
        tag = etag(*identity, *look.values())
        return Representation(tag, "image/png", headers), lambda data: png(fits.image(data), **look)
    if view == View.NPY:
        form = Representation(etag(*identity), "application/octet-stream", headers)
        return form, lambda data: npy(fits.image(data))
    headers["Vary"] = "Accept-Encoding"
    if hdus == Hdus.FIRST:
        return Representation(etag(*identity, hdus), "application/fits", headers), fits.trim
    if preferred(request.headers.get("accept-encoding", ""), ("gzip",)):
        headers["Content-Encoding"] = "gzip"
        return Representation(etag(*identity, "gzip"), "application/fits", headers), bytes
    return Representation(etag(*identity), "application/fits", headers), fits.unpack


async def get_alert(request: Request) -> Response:
    """What is stored of an alert."""
    return JSONResponse(about(await _places(request)), headers={"Cache-Control": FOR_EVER})


async def _places(request: Request) -> list[CutoutLocation]:
    """Where the cutouts of the alert that is asked for lie."""
    alert, survey = parameters.alert_id(request.path_params["alert_id"]), survey_of(request)
    lookup: Lookup = request.app.state.lookup
    kept = lookup.kept_alert(alert, survey)  # see `lightcurves.FEW`
    return kept or await request.app.state.small(lookup.alert, alert, survey)


def about(places: list[CutoutLocation]) -> dict[str, object]:
    """An alert as JSON: whose it is, and which cutouts it has."""
    one = places[0]
    return {
        "alert_id": str(one.alert_id),
        "survey": one.survey,
        "object_id": one.object_id,
        "mjd": one.mjd,
        "cutouts": {
            place.kind: {
                "bytes": place.length,
                "href": f"/v1/alerts/{one.alert_id}/cutouts/{place.kind}",
            }
            if place.pack
            else None
            for place in places
        },
        "thumbnail": f"/v1/alerts/{one.alert_id}/thumbnail",
        "lightcurve": f"/v1/objects/{one.object_id}/lightcurve",
        "page": f"/objects/{one.object_id}?alert={one.alert_id}",
    }


def _kind(text: str) -> Kind:
    try:
        return Kind(text)
    except ValueError:
        raise BadParameter("kind", f"must be one of {', '.join(Kind)}: {text[:40]!r}") from None


def _look(request: Request) -> dict:
    """How a PNG is to look."""
    query = request.query_params
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
    }
