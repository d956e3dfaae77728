"""ALeRCE's routes of images and messages, for ZTF and for Rubin, and of its client's addresses."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stampede.alerts.columns import KINDS
from stampede.images import fits
from stampede.images.png import png
from stampede.lookup.errors import UnknownAlert
from stampede.lookup.lookup import Lookup
from stampede.lookup.packs.locations import of_kind
from stampede.read.compatible.alerce_names import AVRO_ROUTES, RUBIN_ROUTES, ZTF_ROUTES
from stampede.read.compatible.questions import get, parameters_of, wanted
from stampede.read.service import service_of
from stampede.read.web import parameters
from stampede.read.web.conditional import IMMUTABLE

RUBIN_KINDS = {f"cutout{kind.title()}": kind for kind in KINDS}
FORMATS = {"fits": "application/gzip", "png": "image/png"}


async def get_ztf_stamp(request: Request) -> Response:
    """One image of an alert of ZTF: a gzipped FITS file, or a PNG."""
    asked = await parameters_of(request, ("oid", "candid", "type", "format"))
    oid, candid, kind = wanted(asked, "oid", "candid", "type")
    parameters.one_of(kind, "type", KINDS)
    format = parameters.one_of(asked.get("format", "png"), "format", [*FORMATS])
    return await _image(request, ("ztf", oid, candid), kind, format)


async def get_rubin_stamp(request: Request) -> Response:
    """One image of an alert of Rubin: a gzipped FITS file, or a PNG."""
    names = ("oid", "measurement_id", "stamp_type", "file_format", "survey_id")
    asked = await parameters_of(request, names)
    oid, alert_id, kind, format, survey = wanted(asked, *names)
    parameters.one_of(survey, "survey_id", ("lsst",))
    parameters.one_of(kind, "stamp_type", [*RUBIN_KINDS])
    parameters.one_of(format, "file_format", [*FORMATS])
    return await _image(request, ("lsst", oid, alert_id), RUBIN_KINDS[kind], format)


async def get_ztf_avro(request: Request) -> Response:
    """The message of an alert of ZTF, byte for byte."""
    asked = await parameters_of(request, ("oid", "candid"))
    oid, candid = wanted(asked, "oid", "candid")
    return await _message(request, ("ztf", oid, candid))


async def get_rubin_avro(request: Request) -> Response:
    """The message of an alert of Rubin, byte for byte. ALeRCE's client does not send `oid`."""
    asked = await parameters_of(request, ("oid", "measurement_id", "survey_id"))
    (alert_id,) = wanted(asked, "measurement_id")
    return await _message(request, ("lsst", asked.get("oid"), alert_id))


async def get_config(request: Request) -> Response:
    """The file of addresses that ALeRCE's client reads where ALERCE_CONFIG_PATH says."""
    origin = service_of(request).access.proxies.origin_of(request)
    base = f"{origin}{request.scope['root_path']}/alerce"
    of_rubin = {"get_stamp": "/stamp", "get_avro": "/get_avro"}
    return JSONResponse(
        {
            "ztf": {"ZTF_API_URL": base, "ZTF_ROUTES": ZTF_ROUTES},
            "multisurvey": {"URL_MS": f"{base}/", "ROUTES_MS": RUBIN_ROUTES},
            "stamps": {"STAMP_URL": f"{base}/stamps_api", "AVRO_ROUTES": of_rubin},
            "stamps_ztf": {"AVRO_URL": base, "AVRO_ROUTES": AVRO_ROUTES},
        }
    )


Named = tuple[str, str | None, str]
"""Survey, object and alert that a client names; without an object the alert alone decides."""


async def _image(request: Request, named: Named, kind: str, format: str) -> Response:
    service = service_of(request)
    body = await service.run(_draw, service.lookup, named, kind, format)
    return Response(body, headers={"Cache-Control": IMMUTABLE}, media_type=FORMATS[format])


def _draw(lookup: Lookup, named: Named, kind: str, format: str) -> bytes:
    survey, alert_id = _checked(lookup, named)
    file = lookup.images.fits(of_kind(lookup.alert(alert_id, survey), kind))
    return png(fits.image(file)) if format == "png" else fits.gzip_file(file)


async def _message(request: Request, named: Named) -> Response:
    service = service_of(request)

    def read() -> bytes:
        survey, alert_id = _checked(service.lookup, named)
        return service.lookup.message(service.lookup.packet(alert_id, survey))

    headers = {"Cache-Control": IMMUTABLE}
    return Response(await service.run(read), headers=headers, media_type="application/avro")


def _checked(lookup: Lookup, named: Named) -> tuple[str, int]:
    """The survey and the alert. Raises `UnknownAlert`, also if it is one of another object."""
    survey, object_id, text = named
    alert_id = parameters.alert_id(text)
    found = lookup.alert(alert_id, survey)[0]
    if object_id is not None and found.object_id != object_id:
        raise UnknownAlert(f"alert {alert_id} is of object {found.object_id}, not {object_id[:40]}")
    return survey, alert_id


ROUTES = [
    get("/alerce/config.json", "", get_config),
    get("/alerce/get_stamp", "cutouts", get_ztf_stamp),
    get("/alerce/get_avro", "cutouts", get_ztf_avro),
    get("/alerce/stamps_api/stamp", "cutouts", get_rubin_stamp),
    get("/alerce/stamps_api/get_avro", "cutouts", get_rubin_avro),
]
