"""Routes of the front page, and of that of help."""

from starlette.requests import Request
from starlette.responses import Response

from stampede.read.pages import page as pages
from stampede.read.pages.nights import shown_alerts
from stampede.read.pages.verdict import verdict
from stampede.read.service import ReadService, service_of
from stampede.read.summaries.night_counts import NightCount
from stampede.read.summaries.nights import nights_of

NIGHTS = 5
"""Nights on the front page."""


async def front_page(request: Request) -> Response:
    """`/`: a form to find what is stored, the latest alerts, nights, and the ledger."""
    service = service_of(request)
    page = await service.run_ledger(service.ledger.page)
    latest = await service.run_ledger(service.latest.alerts)
    nights = await service.run_ledger(_latest_nights, service)
    alerts = await service.run(shown_alerts, service.lookup, latest)
    return pages.html(pages.page("front.html", verdict=verdict(page), latest=alerts, nights=nights))


async def help_page(request: Request) -> Response:
    """`/help`: what can be searched for, and what plots, units and times mean."""
    return pages.html(pages.page("help.html"))


def _latest_nights(service: ReadService) -> list[NightCount]:
    return service.night_counts.of(nights_of(service.lookup.objects)[:NIGHTS])
