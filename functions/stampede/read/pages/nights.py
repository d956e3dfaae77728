"""Routes of the pages of nights."""

import re
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from stampede.errors import NotFound
from stampede.lookup.errors import BadParameter
from stampede.lookup.lookup import Lookup
from stampede.lookup.packs.locations import by_kind
from stampede.lookup.packs.pack_alerts import PackAlerts, check_packs
from stampede.read.pages import page as pages
from stampede.read.pages.page import ShownAlert
from stampede.read.plots.ticks import day_of, night_of_day
from stampede.read.service import service_of
from stampede.read.summaries.latest_alerts import LatestAlert
from stampede.read.summaries.nights import LISTED, NightAlerts, Part, Place, nights_of

NIGHTS = 30
"""Nights on a page."""
MOST, MOST_PACKS = 48, 24
"""Alerts on a page of a night, and packs that are read for it: two requests each."""
_PLACE = re.compile(r"([0-9a-f]{32})\.([0-9]{1,6})")


async def nights_page(request: Request) -> Response:
    """`/nights`: the nights of the store, the latest first, and how many alerts each has."""
    service, query = service_of(request), request.query_params
    before = parse_night(query["before"], "before") if "before" in query else None
    every = await service.run(nights_of, service.lookup.objects)
    left = [night for night in every if before is None or night < before]
    counts = await service.run_ledger(service.night_counts.of, left[:NIGHTS])
    older = left[NIGHTS - 1] if len(left) > NIGHTS else None
    text = pages.page("nights.html", nights=counts, total=len(every), older=older, before=before)
    return pages.html(text)


async def night_page(request: Request) -> Response:
    """`/nights/{date}`: the alerts of a night, a page at a time."""
    service, query = service_of(request), request.query_params
    night = parse_night(request.path_params["date"], "date")
    start, end = (
        _place(query[name], name) if name in query else None for name in ("from", "until")
    )
    if start and end:
        raise BadParameter("until", "give from or until, not both")
    part = await service.run(_part, service.night_alerts, night, start, end)
    (count,) = await service.run_ledger(service.night_counts.of, [night])
    alerts = await service.run(_shown, service.lookup, service.pack_alerts, part)
    packs = await service.run(service.night_alerts.packs, night)
    proofs = await service.run(service.proofs.of_night, night)
    text = pages.page(
        "night.html",
        night=count,
        alerts=alerts,
        part=part,
        proofs=proofs,
        mixed=any(int(alert.mjd) != night for alert in alerts),
        partial=len(packs) == LISTED,
        most=LISTED,
    )
    return pages.html(text)


def _part(alerts: NightAlerts, night: int, start: Place | None, end: Place | None) -> Part:
    day = day_of(night)
    if not alerts.packs(night):
        raise NotFound(f"no alert of the night {day} (MJD {night}) is stored: see /nights")
    part = alerts.part(night, MOST, MOST_PACKS, start, end)
    if part is None:
        raise NotFound(f"this page of the night {day} is not there any more: see /nights/{day}")
    return part


def _shown(lookup: Lookup, packs: PackAlerts, part: Part) -> list[ShownAlert]:
    """The alerts of a part, each only in the pack where its cutouts are looked up."""
    by_alert = lookup.by_alert({alert.alert_id for _, alert in part.alerts})
    check_packs(packs, part.alerts, by_alert)
    found = []
    for pack, alert in part.alerts:
        locations = by_alert.get((alert.alert_id, alert.survey), [])
        if pack.key in {location.pack for location in locations}:
            found.append(LatestAlert(by_kind(locations), alert.band))
    return shown_alerts(lookup, found)


def shown_alerts(lookup: Lookup, alerts: Sequence[LatestAlert]) -> list[ShownAlert]:
    """Alerts as pages show them."""
    ids = [locations[0].alert_id for locations, _ in alerts]
    thumbnails = {(one.alert_id, one.survey) for one in lookup.thumbnail_locations(ids)}
    return [ShownAlert.of(locations, band, thumbnails) for locations, band in alerts]


def parse_night(text: str, name: str) -> int:
    """The night, an integer MJD (TAI), that a parameter names. Raises `BadParameter`."""
    night = night_of_day(text)
    if night is None:
        raise BadParameter(
            name, f"not a night: say a date, as 2021-07-05, or an MJD: {text[:40]!r}"
        )
    return night


def _place(text: str, name: str) -> Place:
    found = _PLACE.fullmatch(text)
    if not found:
        raise BadParameter(name, f"not a place in a night; begin at its first page: {text[:40]!r}")
    return Place(found[1], int(found[2]))
