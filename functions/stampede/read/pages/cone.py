"""Route of the page of a position: the objects around it."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from stampede.lookup import sky
from stampede.lookup.cone_search import Cone
from stampede.lookup.lookup import Lookup
from stampede.lookup.packs.locations import by_kind
from stampede.lookup.points import PointFilter, measured
from stampede.read.api.cone import objects_around, wanted_cone
from stampede.read.pages import page as pages
from stampede.read.pages import search
from stampede.read.pages.external_links import links_of_position
from stampede.read.pages.nights import shown_alerts
from stampede.read.pages.page import ShownAlert
from stampede.read.plots.sky_plot import SkyObject, sky_plot_svg
from stampede.read.service import ReadService, service_of
from stampede.read.summaries.latest_alerts import LatestAlert

MOST = 200
"""Objects on the page; it links to all of them."""
PICTURED = 12
"""Objects of which the page shows the latest alert."""


async def cone_page(request: Request) -> Response:
    """`/cone?ra=&dec=&radius=`: the objects around a position, the nearest first; else a form."""
    service, query = service_of(request), request.query_params
    if not query:
        return pages.html(pages.page("cone_form.html"))
    cone = wanted_cone(request, search.RADIUS)
    typed = {"ra": query["ra"], "dec": query["dec"], "radius": query.get("radius", search.RADIUS)}
    return pages.html(await service.run(_page, service, cone, typed), pages.WITH_SCRIPT)


def _page(service: ReadService, cone: Cone, typed: Mapping[str, str]) -> str:
    rows: list[dict[str, Any]] = []
    for table in objects_around(service, cone, most=MOST + 1):
        rows += table.to_pylist()
    more, rows = len(rows) > MOST, rows[:MOST]
    for row in rows:
        row["href"] = f"/objects/{quote(row['object_id'], safe='')}"
    ra, dec = f"{cone.centre.ra:.6f}", f"{cone.centre.dec:.6f}"
    arcsec = cone.radius * sky.ARCSEC
    radius = f"{arcsec:g}"
    objects = [
        SkyObject(*(row[name] for name in ("object_id", "ra", "dec", "distance", "href")))
        for row in rows
    ]
    return pages.page(
        "cone.html",
        typed=typed,
        ra=ra,
        dec=dec,
        sexagesimal=pages.sexagesimal(*cone.centre),
        radius=radius,
        wider=f"{max(60, 10 * round(arcsec))}" if cone.radius < sky.FULL / 10 else "",
        rows=rows,
        more=more,
        most=MOST,
        most_pictured=PICTURED,
        alerts=_latest_alerts(service.lookup, rows[:PICTURED]),
        plot=sky_plot_svg(*cone.centre, arcsec, objects) if rows else "",
        links=links_of_position(*cone.centre),
        api=f"/v1/cone?ra={ra}&dec={dec}&radius={radius}",
    )


def _latest_alerts(lookup: Lookup, rows: Sequence[Mapping[str, Any]]) -> list[ShownAlert]:
    """The latest alert of each of these objects, in their order, if it is stored."""
    points = lookup.light_curves.of_objects(sorted({row["object_id"] for row in rows}))
    detections = measured(PointFilter().apply(points))
    names = ["object_id", "survey", "source_id", "band"]
    latest = {  # they are by time: the last one stays
        (object_id, survey): (source_id, band)
        for object_id, survey, source_id, band in zip(
            *(detections[name].to_pylist() for name in names), strict=True
        )
        if source_id is not None
    }
    stored = lookup.by_alert({alert_id for alert_id, _ in latest.values()})
    found = []
    for row in rows:
        alert_id, band = latest.get((row["object_id"], row["survey"]), (0, None))
        locations = stored.get((alert_id, row["survey"]))
        if locations and locations[0].object_id == row["object_id"]:
            found.append(LatestAlert(by_kind(locations), band))
    return shown_alerts(lookup, found)
