"""Route of the page of a position: the objects around it."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from stampede.lookup import sky
from stampede.lookup.cone_search import Cone
from stampede.read.api.cone import objects_around, wanted_cone
from stampede.read.pages import page as pages
from stampede.read.pages import search
from stampede.read.service import ReadService, service_of

MOST = 200
"""Objects on the page; it links to all of them."""


async def cone_page(request: Request) -> Response:
    """`/cone?ra=&dec=&radius=`: the objects around a position, the nearest first; else a form."""
    service = service_of(request)
    if not request.query_params:
        return pages.html(pages.page("cone_form.html"))
    cone = wanted_cone(request, search.RADIUS)
    return pages.html(await service.run(_page, service, cone))


def _page(service: ReadService, cone: Cone) -> str:
    rows: list[dict[str, Any]] = []
    for table in objects_around(service, cone):
        rows += table.slice(0, MOST + 1 - len(rows)).to_pylist()
        if len(rows) > MOST:
            break
    ra, dec = f"{cone.centre.ra:.6f}", f"{cone.centre.dec:+.6f}"
    arcsec = cone.radius * sky.ARCSEC
    radius = f"{arcsec:g}"
    return pages.page(
        "cone.html",
        centre=f"{ra}° {dec.replace('-', '−')}°",
        ra=ra,
        dec=f"{cone.centre.dec:.6f}",
        radius=radius,
        wider=f"{max(60, 10 * round(arcsec))}" if cone.radius < sky.FULL / 10 else "",
        rows=rows[:MOST],
        more=len(rows) > MOST,
        most=MOST,
        api=f"/v1/cone?ra={ra}&dec={cone.centre.dec:.6f}&radius={radius}",
    )
