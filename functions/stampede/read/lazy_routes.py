"""Routes imported with the first request for one: pages, large queries, cones, the API description.

A first cutout needs none of their handlers, whose imports take 25 ms (docs/adr/0050-starts.md).
"""

from functools import wraps

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stampede.read import guide, openapi
from stampede.read.api import (
    bulk,
    cone,
    cross_match,
    datalink,
    ledger,
    object_cutouts,
    proofs,
    scs,
    tap,
    tap_jobs,
)
from stampede.read.compatible.routes import MOUNT as COMPATIBLE
from stampede.read.moving import observations
from stampede.read.pages import alert as alert_page
from stampede.read.pages import api_docs as docs_page
from stampede.read.pages import cone as cone_page
from stampede.read.pages import front_page as html
from stampede.read.pages import ledger_page, search
from stampede.read.pages import moving as moving_page
from stampede.read.pages import nights as night_page
from stampede.read.pages import object as object_page
from stampede.read.pages import page as pages
from stampede.read.pages import proofs as proof_pages
from stampede.read.pages.object_choices import Choices
from stampede.read.route import LIGHT_CURVE, Handler, route
from stampede.read.service import service_of
from stampede.read.web import static_files


def _page(path: str, handler: Handler, *known: str) -> Route:
    """The route of a page, which may tell how its client reaches the server."""

    @wraps(handler)
    async def with_origin(request: Request) -> Response:
        pages.origin.set(service_of(request).access.proxies.origin_of(request))
        return await handler(request)

    return route(path, "pages", with_origin, *known)


CONE = ("ra", "dec", "radius", "since", "nights", "counts", "format", "responseformat")
ROUTES: list[BaseRoute] = [
    _page("/", html.front_page),
    _page("/cone", cone_page.cone_page, "ra", "dec", "radius"),
    _page("/nights", night_page.nights_page, "before"),
    _page("/nights/{date}", night_page.night_page, "from", "until"),
    _page("/proofs", proof_pages.proofs_page, "before"),
    _page("/proofs/{survey}/{night}", proof_pages.proof_page, "sha256"),
    route("/ledger", "ledger", ledger_page.ledger_page, "page"),
    _page("/find", search.find, "id"),
    _page("/moving/{designation:path}", moving_page.moving_page, "axis", "page", "points"),
    _page("/objects/{object_id}", object_page.object_page, *Choices._fields),
    _page("/alerts/{alert_id}", alert_page.alert_page, "survey", "stretch", "limits"),
    route(
        "/v1/objects/{object_id}/cutouts",
        "bulk",
        object_cutouts.get_object_cutouts,
        *("format", "responseformat", "kind", "size", "band", "start", "end"),
    ),
    route("/v1/cutouts", "bulk", bulk.post_cutouts, "format", "responseformat", method="POST"),
    route("/v1/lightcurves", "bulk", bulk.post_light_curves, *LIGHT_CURVE, "asof", method="POST"),
    route(
        "/v1/moving/{designation:path}",
        "lightcurves",
        observations.get_observations,
        *observations.PARAMETERS,
    ),
    route("/v1/cone", "lightcurves", cone.get_cone, *CONE),
    route("/v1/cone", "bulk", cross_match.post_cone, *CONE[2:], method="POST"),
    route("/v1/scs", "lightcurves", scs.get_cone, others=True),
    *(
        route(path, scope, handler, method=method, others=True)
        for path, scope, handler in (
            ("/v1/links/alerts", "cutouts", datalink.alert_links),
            ("/v1/links/objects", "lightcurves", datalink.object_links),
        )
        for method in ("GET", "POST")
    ),
    route("/tap/sync", "bulk", tap.answer_query, others=True),
    route("/tap/sync", "bulk", tap.answer_query, others=True, method="POST"),
    route("/tap/async", "bulk", tap_jobs.get_jobs, others=True),
    route("/tap/async", "bulk", tap_jobs.post_job, others=True, method="POST"),
    route("/tap/async/{job}", "bulk", tap_jobs.get_job, others=True),
    route("/tap/async/{job}", "bulk", tap_jobs.post_to_job, others=True, method="POST"),
    route("/tap/async/{job}", "bulk", tap_jobs.delete_job, others=True, method="DELETE"),
    route("/tap/async/{job}/{part}", "bulk", tap_jobs.get_part, others=True),
    route("/tap/async/{job}/{part}", "bulk", tap_jobs.post_part, others=True, method="POST"),
    route("/tap/async/{job}/results/result", "bulk", tap_jobs.get_result, others=True),
    route("/tap/capabilities", "", tap.get_capabilities, others=True),
    route("/tap/availability", "", tap.get_availability, others=True),
    route("/tap/tables", "", tap.get_tables, others=True),
    route("/tap/tables/{table}", "", tap.get_table, others=True),
    route("/v1/ledger", "ledger", ledger.get_ledger, "family", "limit", "after"),
    route("/v1/proofs", "ledger", proofs.get_proofs, "survey", "limit", "before"),
    route("/v1/proofs/{survey}/{night}", "ledger", proofs.get_proof, "sha256"),
    route("/v1/proofs/{survey}/{night}/ranges", "bulk", proofs.post_ranges, method="POST"),
    route("/v1/proofs/{survey}/{night}/entries", "bulk", proofs.get_entries, "from", "until"),
    route("/v1/alerts/{alert_id}/proof", "cutouts", proofs.get_alert_proof, "survey"),
    route("/.well-known/stampede-proof-keys", "", proofs.get_key),
    _page("/docs", docs_page.docs_page),
    route("/static/{file}", "", static_files.get_static),
    route("/openapi.json", "", openapi.get_openapi),
    route("/help", "", html.help_page),
    route("/robots.txt", "", static_files.get_robots),
    route("/llms.txt", "", guide.get_guide),
    COMPATIBLE,
    route("/favicon.ico", "", static_files.get_icon),
]
