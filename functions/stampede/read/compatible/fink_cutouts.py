"""Fink's route `cutouts`, for ZTF and for Rubin."""

import pydantic_core
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from stampede.images import fits
from stampede.images.png import png
from stampede.images.stretch import Stretch
from stampede.lookup.errors import BadParameter, UnknownAlert
from stampede.lookup.lookup import Lookup
from stampede.lookup.object_alerts import stored_alerts
from stampede.lookup.packs.locations import CutoutLocation, of_kind
from stampede.read.compatible import measurements
from stampede.read.compatible.fink import fink_of
from stampede.read.compatible.fink_names import KINDS_OF_FINK, ZTF, Fink
from stampede.read.compatible.questions import both, parameters_of, wanted
from stampede.read.errors import NotHeld
from stampede.read.service import service_of
from stampede.read.web import parameters
from stampede.read.web.conditional import IMMUTABLE, REVALIDATE

STRETCHES = {
    "sigmoid": Stretch.ASINH,
    "asinh": Stretch.ASINH,
    "linear": Stretch.LINEAR,
    "log": Stretch.LOG,
}
"""Fink's stretches that Stampede draws. Its own default, sigmoid, is near to asinh."""
PICTURE = ("stretch", "pmin", "pmax")
NOT_DRAWN = ("colormap", "convolution_kernel")
MEDIA_TYPES = {"PNG": "image/png", "FITS": "application/fits", "array": "application/json"}
ALL = "All"


async def get_cutouts(request: Request) -> Response:
    """An image of an alert: a PNG, its FITS file, or its pixels as JSON."""
    fink = fink_of(request)
    own = (ZTF.object_id, ZTF.alert_id) if fink is ZTF else (fink.alert_id,)
    asked = await parameters_of(request, (*own, "kind", "output-format", *PICTURE, *NOT_DRAWN))
    name, kind = wanted(asked, own[0], "kind")
    format = parameters.one_of(asked.get("output-format", "PNG"), "output-format", [*MEDIA_TYPES])
    parameters.one_of(kind, "kind", [*KINDS_OF_FINK] + [ALL] * (format == "array"))
    for each in NOT_DRAWN:
        if each in asked:
            raise NotHeld(f"{each}: take output-format=array, and draw the pixels")
    service = service_of(request)
    body = await service.run(_image, service.lookup, fink, asked, kind, format)
    headers = {"Cache-Control": IMMUTABLE if fink.alert_id in asked else REVALIDATE}
    if format != "array":
        file = f"{name[:40]}_{kind}.{format.lower()}"
        headers["Content-Disposition"] = f'attachment; filename="{file}"'
    return Response(body, headers=headers, media_type=MEDIA_TYPES[format])


def _image(lookup: Lookup, fink: Fink, asked: QueryParams, kind: str, format: str) -> bytes:
    cutouts = _alert(lookup, fink, asked)
    if format == "array":
        kinds = [*KINDS_OF_FINK] if kind == ALL else [kind]
        pixels = {
            fink.array.format(each): fits.image(
                lookup.images.fits(of_kind(cutouts, KINDS_OF_FINK[each]))
            ).tolist()
            for each in kinds
        }
        return pydantic_core.to_json(pixels, inf_nan_mode="null")
    file = lookup.images.fits(of_kind(cutouts, KINDS_OF_FINK[kind]))
    return fits.unpack(file) if format == "FITS" else _drawn(file, asked)


def _drawn(file: bytes, asked: QueryParams) -> bytes:
    """The PNG with Fink's stretch; of percentiles sigmoid takes no notice, as Fink says."""
    name = asked.get("stretch", "sigmoid")
    if name not in STRETCHES:
        raise NotHeld(f"stretch: Stampede draws {', '.join(STRETCHES)}, not {name[:40]}")
    low, high = (parameters.number(asked, each, 0, 100) for each in ("pmin", "pmax"))
    if name == "sigmoid":
        return png(fits.image(file), STRETCHES[name])
    low, high = 0.5 if low is None else low, 99.5 if high is None else high
    if low >= high:
        raise BadParameter("pmin", f"must be less than pmax: {low:g} is not less than {high:g}")
    return png(fits.image(file), STRETCHES[name], low, high)


def _alert(lookup: Lookup, fink: Fink, asked: QueryParams) -> list[CutoutLocation]:
    """The cutouts of the alert that the parameters name; of an object of ZTF the latest."""
    if fink.alert_id in asked:
        alert_id = parameters.alert_id(asked[fink.alert_id], fink.alert_id)
        found = lookup.alert(alert_id, fink.survey)
        if fink is ZTF and found[0].object_id != asked[ZTF.object_id]:
            raise UnknownAlert(f"alert {alert_id} is of object {found[0].object_id}")
        return found
    object_id = parameters.object_id(asked[fink.object_id], fink.object_id)
    rows = measurements.points_of(lookup, fink.survey, object_id)
    alerts = stored_alerts(lookup, object_id, rows)
    if not alerts:
        raise UnknownAlert(f"no alert of object {object_id} is stored with its cutouts")
    return alerts[0]


ROUTES = both("/fink/{survey}/api/v1/cutouts", "cutouts", get_cutouts)
