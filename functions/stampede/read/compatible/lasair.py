"""Lasair's routes `cone` and `object`, those of its client `lasair`.

Names and units are those of https://api.lasair.lsst.ac.uk/api as of July 2026: of Rubin's alerts.
Objects of ZTF have the same form. The path ends with a slash, as Lasair's does.
"""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from stampede.alerts.columns import KINDS
from stampede.lookup import sky
from stampede.lookup.cone_search import Cone
from stampede.lookup.errors import BadParameter, UnknownObject
from stampede.lookup.lookup import Lookup
from stampede.lookup.points import PointFilter, PointKind, kinds_of
from stampede.read.compatible import measurements
from stampede.read.compatible.measurements import Names, named, records
from stampede.read.compatible.questions import absent, both, flag, parameters_of, wanted
from stampede.read.service import service_of
from stampede.read.web import parameters

WHO = "Lasair (https://lasair.lsst.ac.uk)"
WIDEST = 1000.0  # arcsec
REQUESTS = ("all", "nearest", "count")
OBJECT: Names = {
    "ra": "ra",
    "decl": "dec",
    "firstDiaSourceMjdTai": "first_mjd",
    "lastDiaSourceMjdTai": "last_mjd",
    "nDiaSources": "detections",
}
FORCED: Names = {
    "midpointMjdTai": "mjd",
    "band": "band",
    "psfFlux": "flux",
    "psfFluxErr": "flux_err",
}
SOURCE: Names = {"diaSourceId": "source_id", **FORCED, "reliability": "reliability"}
PLACE: Names = {"ra": "ra", "decl": "dec", "visit": "visit", "detector": "detector"}
SCIENCE: Names = {"scienceFlux": "total_flux", "scienceFluxErr": "total_flux_err"}
"""What `lite` leaves out, with `PLACE`."""


async def get_cone(request: Request) -> Response:
    """The objects around a position, the nearest of them, or their number."""
    asked = await parameters_of(request, ("ra", "dec", "radius", "requestType", "format"))
    ra, dec, _, kind = wanted(asked, "ra", "dec", "radius", "requestType")
    parameters.one_of(kind, "requestType", REQUESTS)
    radius = parameters.number(asked, "radius", 0, WIDEST) or 0.0
    cone = Cone(sky.place(ra, dec), radius / sky.ARCSEC)
    service = service_of(request)
    found = await service.run(measurements.around, service.lookup, None, cone, counted=False)
    near = [{"object": _id(one), "separation": one["distance"]} for one in found]
    nearest = {"nearest": near[0]} if near else {}
    if kind == "nearest":
        return measurements.json_response(nearest)
    if kind == "count":
        return measurements.json_response({"count": len(near)})
    everything = {"objects": near, "count": len(near), "nearest": nearest.get("nearest", {})}
    return measurements.json_response(everything)


async def get_object(request: Request) -> Response:
    """One object and its points; with `lasair_added` also the addresses of its images."""
    known = ("objectId", "lite", "lasair_added", "reliabilityThreshold", "format")
    asked = await parameters_of(request, known)
    (text,) = wanted(asked, "objectId")
    object_id = parameters.object_id(text, "objectId")
    service = service_of(request)
    url = service.access.proxies.origin_of(request)
    found = await service.run(_object, service.lookup, object_id, asked, url)
    return measurements.json_response(found)


def _object(lookup: Lookup, object_id: str, asked: QueryParams, url: str) -> dict[str, Any]:
    """What Lasair says of an object. Raises `UnknownObject`."""
    rows = measurements.of_alerts(PointFilter().apply(lookup.light_curves.of_object(object_id)))
    names = rows["survey"].unique().to_pylist()
    if not names:
        raise UnknownObject(f"no alert of object {object_id} is stored")
    if len(names) > 1:
        raise BadParameter("objectId", f"is an object of {' and of '.join(names)}")
    lite = flag(asked, "lite")
    least = parameters.number(asked, "reliabilityThreshold", 0, 1) or 0.0
    sources = _points(rows, PointKind.DETECTION, SOURCE if lite else {**SOURCE, **PLACE, **SCIENCE})
    sources = [one for one in sources if not least or (one["reliability"] or 0) > least]
    summary = measurements.summary(object_id, rows)
    about = measurements.translated([summary], OBJECT)[0]
    count = about.pop("nDiaSources")
    found: dict[str, Any] = {"diaObjectId": _id(summary)}
    if flag(asked, "lasair_added", default=True):
        images = _images(lookup, [one["diaSourceId"] for one in sources], url)
        found["lasairData"] = {"nDiaSources": count, "imageUrls": images}
    return found | {
        "diaObject": about,
        "diaSourcesList": sources,
        "diaForcedSourcesList": _points(
            rows, PointKind.FORCED, FORCED if lite else {**FORCED, **PLACE}
        ),
    }


def _points(rows: pa.Table, kind: PointKind, names: Names) -> list[dict[str, Any]]:
    """The points of a kind, the latest first."""
    return records(named(rows.filter(pa.array(kinds_of(rows) == kind.value))[::-1], names))


def _images(lookup: Lookup, ids: Iterable[int], url: str) -> list[dict[str, Any]]:
    """The addresses of the images of each alert that is stored with any."""
    found = []
    for (alert_id, survey), cutouts in lookup.by_alert({*ids}).items():
        path = f"{url}/v1/alerts/{alert_id}/cutouts"
        sent = {one.kind for one in cutouts if one.pack}
        urls = {kind.title(): f"{path}/{kind}?survey={survey}" for kind in KINDS if kind in sent}
        found += [{"diaSourceId": alert_id, **urls}] * bool(urls)
    return found


def _id(row: dict[str, Any]) -> int | str:
    """The id of an object, as a number where its survey's ids are numbers."""
    name: str = row["object_id"]
    return int(name) if name.isdecimal() else name


_ABSENT = {
    "query": "tables for SQL",
    "sherlock/object": "cross-matches with catalogues",
    "sherlock/position": "cross-matches with catalogues",
    "annotate": "annotations",
    "annotatelist": "annotations",
}
ROUTES = [
    *both("/lasair/api/cone/", "lightcurves", get_cone),
    *both("/lasair/api/object/", "lightcurves", get_object),
    *(one for end, what in _ABSENT.items() for one in absent(f"/lasair/api/{end}/", what, WHO)),
]
