"""Routes of the HTML pages."""

import re
from collections.abc import Sequence
from enum import StrEnum
from urllib.parse import quote, urlencode

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from stampede.errors import NotFound
from stampede.read import pages, parameters
from stampede.read.errors import UnknownObject
from stampede.read.latest_alerts import LatestAlert
from stampede.read.locations import CutoutLocation, by_kind
from stampede.read.lookup import Lookup
from stampede.read.plot import Axis
from stampede.read.points import PointFilter, measured
from stampede.read.service import service_of

_ANGLE = re.compile(r"[-+]?[0-9.][0-9.:°'′\"″a-z]*")
RADIUS = "5"
"""Arcseconds around a position that is typed without a radius."""
EXAMINED = 5
"""Detections that are looked for in the table of cutouts, for each alert to show: not every
detection came with an alert."""


class Shown(StrEnum):
    """How many alerts and points of an object its page shows."""

    LATEST = "latest"
    ALL = "all"

    @property
    def most(self) -> int:
        """The number: a page of more alerts would take seconds."""
        return 12 if self == Shown.LATEST else 2000


async def front_page(request: Request) -> Response:
    """`/`: a form to find what is stored, the latest alerts, and the ledger."""
    service = service_of(request)
    page = await service.run_ledger(service.ledger.page)
    latest = await service.run_ledger(service.latest.alerts)
    alerts = await service.run(_shown_latest, service.lookup, latest)
    return pages.html(pages.front_page(page.entries, page.asked, alerts))


def _shown_latest(lookup: Lookup, latest: Sequence[LatestAlert]) -> list[pages.ShownAlert]:
    ids = [locations[0].alert_id for locations, _ in latest]
    thumbnails = {(one.alert_id, one.survey) for one in lookup.thumbnail_locations(ids)}
    packets = lookup.with_packet(ids)
    return [pages.ShownAlert.of(locations, band, thumbnails, packets) for locations, band in latest]


async def object_page(request: Request) -> Response:
    """`/objects/{id}`: the light curve and the latest cutouts of one object."""
    service, query = service_of(request), request.query_params
    object_id = parameters.object_id(request.path_params["object_id"])
    axis = parameters.choice(query, "axis", Axis, Axis.FLUX)
    chosen = parameters.alert_id(query["alert"], "alert") if "alert" in query else None
    shown = parameters.choice(query, "alerts", Shown, Shown.LATEST)
    page = await service.run(_object_page, service.lookup, object_id, axis, chosen, shown)
    return pages.html(page)


def _object_page(
    lookup: Lookup, object_id: str, axis: Axis, chosen: int | None, shown: Shown
) -> str:
    detections = PointFilter().apply(lookup.light_curve(object_id))
    if not detections.num_rows:
        raise UnknownObject(f"the survey has withdrawn every detection of object {object_id}")
    alerts = latest_alerts(lookup, object_id, detections, chosen, shown.most)
    thumbnails = lookup.thumbnail_locations([locations[0].alert_id for locations in alerts])
    with_thumbnail = {(location.alert_id, location.survey) for location in thumbnails}
    packets = lookup.with_packet([locations[0].alert_id for locations in alerts])
    return pages.object_page(
        object_id, detections, alerts, axis, chosen, with_thumbnail, packets, shown.most
    )


def latest_alerts(
    lookup: Lookup, object_id: str, detections: pa.Table, chosen: int | None, most: int
) -> list[list[CutoutLocation]]:
    """The cutouts of the latest alerts of an object, `most` of them, and of the alert `chosen`."""
    alert_ids = measured(detections)["source_id"].to_pylist()[-EXAMINED * most :]
    found: dict[int, list[CutoutLocation]] = {}
    for location in lookup.locations([*alert_ids, chosen] if chosen else alert_ids):
        if location.object_id == object_id:
            found.setdefault(location.alert_id, []).append(location)
    latest = sorted(found.values(), key=lambda locations: -locations[0].mjd)
    shown = latest[:most]
    if chosen in found and found[chosen] not in shown:
        shown[-1] = found[chosen]
    return [by_kind(locations) for locations in shown]


async def find(request: Request) -> Response:
    """`/find?id=`: redirects to the page of an object, of an alert, or of a position."""
    service = service_of(request)
    text = request.query_params.get("id", "").strip()
    if position := _position(text):
        return RedirectResponse(f"/cone?{urlencode(position)}", 302)
    wanted = parameters.object_id(text, "id")
    return RedirectResponse(await service.run(_find, service.lookup, wanted), 302)


def _position(text: str) -> dict[str, str] | None:
    """The parameters of `/cone` in what was typed; None if it is an id.

    A position is two words, or six of sexagesimal parts; one more is a radius.
    """
    words = text.replace(",", " ").split()
    if len(words) in (6, 7):
        words = [":".join(words[:3]), ":".join(words[3:6]), *words[6:]]
    if len(words) not in (2, 3) or not all(map(_ANGLE.fullmatch, words)):
        return None
    return dict(zip(("ra", "dec", "radius"), [*words, RADIUS], strict=False))


def _find(lookup: Lookup, text: str) -> str:
    """The URL of the object or alert of that id. Raises `NotFound`."""
    # ZTF writes its ids as ZTF21abiuvdk, whatever a reader types.
    spellings = dict.fromkeys((text, text[:3].upper() + text[3:].lower(), text.upper()))
    stored = set(lookup.detections.lookup([*spellings])["object_id"].to_pylist())
    for name in spellings:
        if name in stored:
            return f"/objects/{quote(name, safe='')}"
    if text.isdigit():
        locations = lookup.locations([parameters.alert_id(text, "id")])
        if locations:
            return f"/alerts/{text}"
    raise NotFound(f"no object and no alert {text} is stored")
