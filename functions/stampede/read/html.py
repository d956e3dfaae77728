"""Routes of the HTML pages."""

from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from stampede.errors import NotFound
from stampede.read import pages, parameters
from stampede.read.errors import UnknownObject
from stampede.read.locations import CutoutLocation, by_kind
from stampede.read.lookup import Lookup
from stampede.read.plot import Axis
from stampede.read.points import PointFilter
from stampede.read.service import service_of

SHOWN, EXAMINED = 6, 60
"""Alerts on the page of an object, and number of its latest detections that may be these alerts."""


async def front_page(request: Request) -> Response:
    """`/`: what is stored, and a form to find it."""
    service = service_of(request)
    page = await service.run_ledger(service.ledger.page)
    return _html(pages.front_page(page.entries, page.asked))


async def object_page(request: Request) -> Response:
    """`/objects/{id}`: the light curve and the latest cutouts of one object."""
    service, query = service_of(request), request.query_params
    object_id = parameters.object_id(request.path_params["object_id"])
    axis = parameters.choice(query, "axis", Axis, Axis.FLUX)
    chosen = parameters.alert_id(query["alert"], "alert") if "alert" in query else None
    return _html(await service.run(_object_page, service.lookup, object_id, axis, chosen))


def _object_page(lookup: Lookup, object_id: str, axis: Axis, chosen: int | None) -> str:
    detections = PointFilter().apply(lookup.light_curve(object_id))
    if not detections.num_rows:
        raise UnknownObject(f"the survey has withdrawn every detection of object {object_id}")
    alerts = latest_alerts(lookup, object_id, detections, chosen)
    thumbnails = lookup.thumbnail_locations([locations[0].alert_id for locations in alerts])
    with_thumbnail = {(location.alert_id, location.survey) for location in thumbnails}
    packets = lookup.with_packet([locations[0].alert_id for locations in alerts])
    return pages.object_page(object_id, detections, alerts, axis, chosen, with_thumbnail, packets)


def latest_alerts(
    lookup: Lookup, object_id: str, detections: pa.Table, chosen: int | None
) -> list[list[CutoutLocation]]:
    """The cutouts of the latest alerts of an object, and of the alert `chosen`."""
    measured = detections.filter(pc.invert(pc.or_(detections["forced"], detections["limit"])))
    alert_ids = measured["source_id"].to_pylist()[-EXAMINED:]
    found: dict[int, list[CutoutLocation]] = {}
    for location in lookup.locations([*alert_ids, chosen] if chosen else alert_ids):
        if location.object_id == object_id:
            found.setdefault(location.alert_id, []).append(location)
    latest = sorted(found.values(), key=lambda locations: -locations[0].mjd)
    shown = latest[:SHOWN]
    if chosen in found and found[chosen] not in shown:
        shown[-1] = found[chosen]
    return [by_kind(locations) for locations in shown]


async def alert_page(request: Request) -> Response:
    """`/alerts/{id}`: redirects to the alert on its object's page."""
    service = service_of(request)
    alert_id = parameters.alert_id(request.path_params["alert_id"])
    survey = parameters.survey(request.query_params)
    locations = await service.run(service.lookup.alert, alert_id, survey)
    return RedirectResponse(_url(locations[0]), 302)


async def find(request: Request) -> Response:
    """`/find?id=`: redirects to an object's page, or to an alert on it."""
    service = service_of(request)
    text = parameters.object_id(request.query_params.get("id", "").strip(), "id")
    return RedirectResponse(await service.run(_find, service.lookup, text), 302)


def _find(lookup: Lookup, text: str) -> str:
    """The URL of the object or alert of that id. Raises `NotFound`."""
    if lookup.detections.lookup([text]).num_rows:
        return f"/objects/{text}"
    if text.isdigit():
        locations = lookup.locations([parameters.alert_id(text, "id")])
        if locations:
            return _url(locations[0])
    raise NotFound(f"no object and no alert {text} is stored")


def _url(alert: CutoutLocation) -> str:
    page = f"/objects/{quote(alert.object_id, safe='')}"
    return f"{page}?alert={alert.alert_id}#alert-{alert.alert_id}"


def _html(text: str) -> Response:
    headers = {"Content-Security-Policy": pages.POLICY, "Cache-Control": "no-cache"}
    return HTMLResponse(text, headers=headers)
