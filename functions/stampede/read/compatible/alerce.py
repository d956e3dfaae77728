"""ALeRCE's routes of objects and light curves, for ZTF and for Rubin.

The client `alerce` sends a question about Rubin's alerts to other paths than one about ZTF's.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from stampede.lookup import sky
from stampede.lookup.cone_search import Cone
from stampede.lookup.errors import BadParameter
from stampede.lookup.lookup import Lookup
from stampede.lookup.points import PointKind, kinds_of
from stampede.read.api.cone import SMALL
from stampede.read.compatible import measurements
from stampede.read.compatible.alerce_names import BANDS, LSST, OF_FORCED, ZTF, Survey
from stampede.read.compatible.measurements import named, records
from stampede.read.compatible.questions import (
    absent,
    get,
    parameters_of,
    refuse,
    run,
    span,
    wanted,
)
from stampede.read.errors import NotHeld
from stampede.read.route import Handler
from stampede.read.service import service_of
from stampede.read.web import parameters
from stampede.runtime.timescale import TAI_MINUS_UTC

WHO = "ALeRCE (https://alerce.science)"
PAGE, MOST_PAGE = 10, 1000
"""Objects of a page: by default, and at most."""
MOST_IDS = 100
CLASSES = ("classifier", "class", "class_name", "probability", "ranking")
RANGES = ("ndet", "n_det", "firstmjd", "lastmjd")
LIST = (
    *("oid", "survey", "ra", "dec", "radius", *RANGES, *CLASSES),
    *("page", "page_size", "count", "order_by", "order_mode"),
)
ORDERS = ("ASC", "DESC")
LISTS = {
    PointKind.DETECTION: "detections",
    PointKind.LIMIT: "non_detections",
    PointKind.FORCED: "forced_photometry",
}
"""The members of an answer that has several kinds of points."""


async def list_ztf_objects(request: Request) -> Response:
    """A page of ZTF's objects around a position, or of these ids."""
    return await _list(request, ZTF)


async def list_rubin_objects(request: Request) -> Response:
    """A page of Rubin's objects around a position, or of these ids."""
    return await _list(request, LSST)


async def _list(request: Request, survey: Survey) -> Response:
    asked = await parameters_of(request, LIST)
    parameters.one_of(asked.get("survey", survey.name), "survey", (survey.name,))
    refuse(asked, CLASSES, "classification", WHO)
    count = measurements.MOST_OBJECTS if _is_wide(asked) else len(asked.getlist("oid"))
    objects = await run(request, count, _chosen, survey, asked)
    return measurements.json_response(_page(objects, asked))


def _is_wide(asked: QueryParams) -> bool:
    """Whether a cone is so large that the light curves in it are many. Raises `BadParameter`."""
    return "radius" in asked and sky.radius(asked["radius"]) > SMALL


async def get_object(request: Request) -> Response:
    """One object: its mean position, and how often and when it was detected."""
    survey, object_id = await _object(request, "return_survey_extra")
    service = service_of(request)
    found = await service.run(_one, service.lookup, survey, object_id)
    return measurements.json_response(found)


async def get_detections(request: Request) -> Response:
    """The detections of an object."""
    return await _points(request, PointKind.DETECTION)


async def get_non_detections(request: Request) -> Response:
    """The upper limits of an object."""
    return await _points(request, PointKind.LIMIT)


async def get_forced_photometry(request: Request) -> Response:
    """The forced photometry of an object."""
    return await _points(request, PointKind.FORCED)


async def get_ztf_light_curve(request: Request) -> Response:
    """The detections and upper limits of one of ZTF's objects."""
    return await _points(request, PointKind.DETECTION, PointKind.LIMIT)


async def get_rubin_light_curve(request: Request) -> Response:
    """All points of one of Rubin's objects."""
    return await _points(request, *PointKind)


async def _points(request: Request, *kinds: PointKind) -> Response:
    survey, object_id = await _object(request)
    service = service_of(request)
    found = await service.run(_curve, service.lookup, survey, object_id, kinds)
    return measurements.json_response(found)


async def _object(request: Request, *more: str) -> tuple[Survey, str]:
    """The survey and the id of the object that the path or the parameters name."""
    if "oid" in request.path_params:
        await parameters_of(request, ("survey_id", *more))
        return ZTF, parameters.object_id(request.path_params["oid"], "oid")
    asked = await parameters_of(request, ("oid", "survey_id", *more))
    oid, survey = wanted(asked, "oid", "survey_id")
    parameters.one_of(survey, "survey_id", (LSST.name,))
    return LSST, parameters.object_id(oid, "oid")


def _chosen(lookup: Lookup, survey: Survey, asked: QueryParams) -> list[dict[str, Any]]:
    """The objects that the parameters choose, as ALeRCE writes them. Raises `NotHeld`."""
    if names := asked.getlist("oid"):
        if len(names) > MOST_IDS:
            raise BadParameter("oid", f"oid is given more than {MOST_IDS} times")
        ids = dict.fromkeys(parameters.object_id(name, "oid") for name in names)
        objects = [_one(lookup, survey, each) for each in ids]
    elif {"ra", "dec", "radius"} & {*asked}:
        ra, dec, radius = wanted(asked, "ra", "dec", "radius")
        cone = Cone(sky.place(ra, dec), sky.radius(radius))
        found = measurements.around(lookup, survey.name, cone)
        objects = [_as_object(survey, one) for one in found]
    else:
        raise NotHeld("Stampede lists the objects around ra, dec with radius, or those of oid")
    for name in RANGES:
        if name in asked and name not in survey.object:
            raise BadParameter(name, f"unknown parameter {name!r} of {survey.name}")
        if name in asked:
            low, high = span(asked, name)
            objects = [one for one in objects if low <= (one[name] or 0) <= high]
    return objects


def _page(objects: list[dict[str, Any]], asked: QueryParams) -> dict[str, Any]:
    """One page of objects, in the order that the parameters name, and where the others are."""
    page = parameters.whole_number(asked, "page", 1, 1_000_000) or 1
    size = parameters.whole_number(asked, "page_size", 1, MOST_PAGE) or PAGE
    if key := asked.get("order_by"):
        if objects and key not in objects[0]:
            raise NotHeld(f"order_by: Stampede has no {key[:40]} of objects")
        mode = parameters.one_of(asked.get("order_mode", "DESC").upper(), "order_mode", ORDERS)
        objects = sorted(objects, key=lambda one: one[key] or 0, reverse=mode == "DESC")
    more = len(objects) > page * size
    return {
        "total": len(objects),
        "page": page,
        "next": page + 1 if more else None,
        "has_next": more,
        "prev": page - 1 if page > 1 else None,
        "has_prev": page > 1,
        "items": objects[(page - 1) * size : page * size],
    }


def _one(lookup: Lookup, survey: Survey, object_id: str) -> dict[str, Any]:
    rows = measurements.points_of(lookup, survey.name, object_id)
    return _as_object(survey, measurements.summary(object_id, rows))


def _as_object(survey: Survey, found: dict[str, Any]) -> dict[str, Any]:
    """What `measurements.summary` or `around` gives, as ALeRCE writes it."""
    first, last = found["first_mjd"], found["last_mjd"]
    own = {"object_number": _number(found["object_id"]), "days": None}
    if first is not None:
        scale = TAI_MINUS_UTC if survey.utc else 0.0
        own |= {"days": last - first, "first_mjd": first - scale, "last_mjd": last - scale}
    return measurements.translated([found | own], survey.object)[0]


def _curve(lookup: Lookup, survey: Survey, object_id: str, kinds: Sequence[PointKind]) -> Any:
    """The points of one kind as ALeRCE writes them, or of several by the names of `LISTS`."""
    rows = measurements.extended(measurements.points_of(lookup, survey.name, object_id))
    numbers = [BANDS.get(band) for band in rows["band"].to_pylist()]
    rows = rows.append_column("band_number", pa.array(numbers, pa.int32()))
    oid = pa.array([_number(object_id)] * len(rows), pa.int64())
    rows = rows.append_column("object_number", oid)
    found = {}
    for kind in kinds:
        of_kind = rows.filter(pa.array(kinds_of(rows) == kind.value))
        if kind == PointKind.DETECTION:
            of_kind = of_kind.append_column("has_stamp", _have_stamps(lookup, of_kind))
        found[LISTS[kind]] = _of_kind(survey, kind, of_kind)
    return found if len(kinds) > 1 else found[LISTS[kinds[0]]]


def _have_stamps(lookup: Lookup, detections: pa.Table) -> pa.Array:
    """Whether the cutouts of each detection are stored."""
    ids = detections["source_id"].to_pylist()
    stored = {
        alert_id
        for (alert_id, _), cutouts in lookup.by_alert({*ids}).items()
        if any(one.pack for one in cutouts)
    }
    return pa.array([each in stored for each in ids], pa.bool_())


def _of_kind(survey: Survey, kind: PointKind, rows: pa.Table) -> list[dict[str, Any]]:
    points = records(named(rows, survey.points[kind]))
    if survey is LSST:
        bands = {str(number): band for band, number in BANDS.items()}
        return [point | {"band_map": bands} for point in points]
    if kind == PointKind.DETECTION:
        return [point | {"candid": str(point["candid"])} for point in points]
    if kind == PointKind.FORCED:
        nested = records(named(rows, OF_FORCED))
        # Its client takes `aid` and `sid` away, and fails if they are not there.
        both = zip(points, nested, strict=True)
        return [point | {"aid": None, "sid": None, "extra_fields": more} for point, more in both]
    return points


def _number(object_id: str) -> int | None:
    """The id of one of Rubin's objects as a number; None if it is none."""
    return int(object_id) if object_id.isdecimal() else None


_OBJECT = "/alerce/ztf/v1/objects/{oid}"
_ABSENT = {
    f"{_OBJECT}/magstats": "statistics of magnitudes",
    f"{_OBJECT}/probabilities": "classification",
    f"{_OBJECT}/features": "features",
    f"{_OBJECT}/features/{{name}}": "features",
    "/alerce/ztf/v1/classifiers": "classifiers",
    "/alerce/ztf/v1/classifiers/{name}/{version}/classes": "classifiers",
    "/alerce/probability_api/probability": "classification",
}

_PRESENT: dict[str, Handler] = {
    "/alerce/ztf/v1/objects": list_ztf_objects,
    _OBJECT: get_object,
    f"{_OBJECT}/detections": get_detections,
    f"{_OBJECT}/non_detections": get_non_detections,
    f"{_OBJECT}/lightcurve": get_ztf_light_curve,
    "/alerce/v2/lightcurve/forced-photometry/{oid}": get_forced_photometry,
    "/alerce/object_api/list_objects": list_rubin_objects,
    "/alerce/object_api/object": get_object,
    "/alerce/lightcurve_api/detections": get_detections,
    "/alerce/lightcurve_api/non_detections": get_non_detections,
    "/alerce/lightcurve_api/forced-photometry": get_forced_photometry,
    "/alerce/lightcurve_api/lightcurve": get_rubin_light_curve,
}
ROUTES = [
    *(get(path, "lightcurves", handler) for path, handler in _PRESENT.items()),
    *(one for path, what in _ABSENT.items() for one in absent(path, what, WHO)),
]
