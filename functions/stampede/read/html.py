"""Routes of the pages for people."""

import pyarrow as pa
import pyarrow.compute as pc
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from stampede.errors import NotFound
from stampede.read import pages, parameters
from stampede.read.cutouts import survey_of
from stampede.read.ledger import Ledger
from stampede.read.lookup import CutoutLocation, Lookup, by_kind, select
from stampede.read.plot import Axis
from stampede.read.problems import UnknownObject

SHOWN, ASKED = 6, 60
"""Alerts shown on an object's page, and detections looked at to find as many with cutouts."""


async def front_page(request: Request) -> Response:
    """`/`: what is stored, and a way to it."""
    ledger: Ledger = request.app.state.ledger
    page = await request.app.state.small(ledger.page)
    return _html(pages.front_page(page.entries))


async def object_page(request: Request) -> Response:
    """`/objects/{id}`: the light curve and the latest cutouts of one object."""
    lookup: Lookup = request.app.state.lookup
    identity = parameters.object_id(request.path_params["object_id"])
    query = request.query_params
    axis = parameters.choice(query, "axis", Axis, Axis.FLUX)
    chosen = parameters.alert_id(query["alert"], "alert") if "alert" in query else None

    def made() -> str:
        detections = select(lookup.light_curve(identity))
        if not detections.num_rows:
            raise UnknownObject(f"the survey has withdrawn every detection of object {identity}")
        alerts = latest_alerts(lookup, identity, detections, chosen)
        shown = [places[0].alert_id for places in alerts]
        drawn = {(picture.alert_id, picture.survey) for picture in lookup.pictures(shown)}
        return pages.object_page(identity, detections, alerts, axis, chosen, drawn)

    return _html(await request.app.state.small(made))


def latest_alerts(
    lookup: Lookup, identity: str, detections: pa.Table, chosen: int | None
) -> list[list[CutoutLocation]]:
    """The cutouts of the latest alerts of an object, and of the one that was chosen."""
    own = detections.filter(pc.invert(pc.or_(detections["forced"], detections["limit"])))
    ids = own["source_id"].to_pylist()[-ASKED:]
    found: dict[int, list[CutoutLocation]] = {}
    for place in lookup.places([*ids, chosen] if chosen else ids):
        if place.object_id == identity:
            found.setdefault(place.alert_id, []).append(place)
    latest = sorted(found.values(), key=lambda places: -places[0].mjd)
    shown = latest[:SHOWN]
    if chosen in found and found[chosen] not in shown:
        shown[-1] = found[chosen]
    return [by_kind(places) for places in shown]


async def alert_page(request: Request) -> Response:
    """`/alerts/{id}`: to the place of the alert on its object's page."""
    alert = parameters.alert_id(request.path_params["alert_id"])
    lookup: Lookup = request.app.state.lookup
    places = await request.app.state.small(lookup.alert, alert, survey_of(request))
    return _to_alert(places[0])


async def find(request: Request) -> Response:
    """`/find?id=`: an object's page, or an alert's."""
    identity = parameters.object_id(request.query_params.get("id", "").strip(), "id")
    lookup: Lookup = request.app.state.lookup

    def found() -> Response:
        if lookup.detections.lookup([identity]).num_rows:
            return RedirectResponse(f"/objects/{identity}", 302)
        if identity.isdigit():
            places = lookup.places([parameters.alert_id(identity, "id")])
            if places:
                return _to_alert(places[0])
        raise NotFound(f"there is no object and no alert {identity}")

    return await request.app.state.small(found)


def _to_alert(place: CutoutLocation) -> Response:
    there = f"/objects/{place.object_id}?alert={place.alert_id}#alert-{place.alert_id}"
    return RedirectResponse(there, 302)


def _html(text: str) -> Response:
    headers = {"Content-Security-Policy": pages.POLICY, "Cache-Control": "no-cache"}
    return HTMLResponse(text, headers=headers)
