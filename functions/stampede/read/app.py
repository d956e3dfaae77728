"""The read service: cutouts and light curves by id over HTTP. It has no state but caches."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import wraps

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from stampede import metrics
from stampede.errors import StampedeError
from stampede.read import (
    alert_page,
    alerts,
    bulk,
    cone,
    cone_page,
    cross_match,
    cutouts,
    docs_page,
    error_handlers,
    html,
    ledger,
    ledger_page,
    lightcurves,
    night_page,
    object_cutouts,
    object_page,
    openapi,
    pages,
    parameters,
    scs,
    search,
    static_files,
    thumbnails,
)
from stampede.read.cors import Cors
from stampede.read.middleware import AnswerMiddleware
from stampede.read.object_choices import Choices
from stampede.read.service import ReadService, service_of
from stampede.settings import Settings
from stampede.store.objects import Objects
from stampede.store.open import open_objects

# Longest time that a thread keeps the interpreter from the event loop, which needs it for every
# packet. 8 cutouts at a time have a p99 of 52 ms with Python's default of 5 ms, 36 ms with this
# (five rounds).
SWITCH_SECONDS = 0.0005

Handler = Callable[[Request], Awaitable[Response]]


class _App(Starlette):
    """An application with `AnswerMiddleware` around it, also around its answers to bugs."""

    origins: Sequence[str] = ()

    def build_middleware_stack(self) -> ASGIApp:
        return AnswerMiddleware(super().build_middleware_stack(), Cors(self.origins))


def make_app(settings: Settings, objects: Objects | None = None) -> Starlette:
    """The ASGI application; `objects` replaces the store that the settings name."""
    if objects is None:
        objects = open_objects(settings)
    service = ReadService.over(objects, settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sys.setswitchinterval(SWITCH_SECONDS)
        yield
        await service.close()

    app = _App(
        routes=ROUTES,
        exception_handlers={
            StampedeError: error_handlers.on_stampede_error,
            HTTPException: error_handlers.on_http_exception,
            ClientDisconnect: error_handlers.on_disconnect,
            Exception: error_handlers.on_bug,
        },
        lifespan=lifespan,
    )
    # Starlette redirects a path with a slash too many to the host that the request names.
    app.router.redirect_slashes = False
    app.state.service = service
    app.origins = settings.cors_origins.replace(",", " ").split()
    return app


async def liveness(request: Request) -> Response:
    """The process answers."""
    return JSONResponse({"status": "alive"}, headers={"Cache-Control": "no-store"})


async def readiness(request: Request) -> Response:
    """The store answers."""
    service = service_of(request)
    await service.run(service.lookup.check_store)
    return JSONResponse({"status": "ready"}, headers={"Cache-Control": "no-store"})


def _route(
    path: str, scope: str, handler: Handler, *known: str, method: str = "GET", others: bool = False
) -> Route:
    """A route of a scope; it refuses query parameters that are not `known`, unless `others`."""

    @wraps(handler)
    async def checked(request: Request) -> Response:
        access = service_of(request).access
        request.state.client = await access.check(request, scope)
        if scope == "pages":
            pages.origin.set(access.proxies.origin_of(request))
        if not others:
            parameters.check_names(request.query_params, known)
        return access.mark(await handler(request), scope)

    return Route(path, checked, methods=[method])


POINTS = ("band", "forced", "start", "end", "withdrawn", "magnitudes")
LIGHT_CURVE = ("format", "responseformat", *POINTS)
CUTOUT = (
    *("format", "hdus", "hdu", "stretch", "limits", "min", "max", "vmin", "vmax", "size"),
    *("orient", "survey"),
)
CONE = ("ra", "dec", "radius", "since", "nights", "format", "responseformat")
ROUTES = [  # the first that matches; most requests are for cutouts
    _route("/v1/alerts/{alert_id}/cutouts/{kind}", "cutouts", cutouts.get_cutout, *CUTOUT),
    _route("/", "pages", html.front_page),
    _route("/cone", "pages", cone_page.cone_page, "ra", "dec", "radius"),
    _route("/nights", "pages", night_page.nights_page, "before"),
    _route("/nights/{date}", "pages", night_page.night_page, "from", "until"),
    _route("/ledger", "ledger", ledger_page.ledger_page),
    _route("/find", "pages", search.find, "id"),
    _route("/objects/{object_id}", "pages", object_page.object_page, *Choices._fields),
    _route("/alerts/{alert_id}", "pages", alert_page.alert_page, "survey", "stretch", "limits"),
    _route("/v1/alerts", "cutouts", alerts.get_latest, "limit"),
    _route("/v1/alerts/{alert_id}", "cutouts", alerts.get_alert, "survey"),
    _route("/v1/alerts/{alert_id}/packet", "cutouts", alerts.get_packet, "survey"),
    _route("/v1/alerts/{alert_id}/thumbnail", "cutouts", thumbnails.get_thumbnail, "survey"),
    _route(
        "/v1/objects/{object_id}/lightcurve",
        "lightcurves",
        lightcurves.get_light_curve,
        *LIGHT_CURVE,
    ),
    _route(
        "/v1/objects/{object_id}/cutouts",
        "bulk",
        object_cutouts.get_object_cutouts,
        *("format", "responseformat", "kind", "size", "band", "start", "end"),
    ),
    _route("/v1/cutouts", "bulk", bulk.post_cutouts, "format", "responseformat", method="POST"),
    _route("/v1/lightcurves", "bulk", bulk.post_light_curves, *LIGHT_CURVE, method="POST"),
    _route("/v1/cone", "lightcurves", cone.get_cone, *CONE),
    _route("/v1/cone", "bulk", cross_match.post_cone, *CONE[2:], method="POST"),
    _route("/v1/scs", "lightcurves", scs.get_cone, others=True),
    _route("/v1/ledger", "ledger", ledger.get_ledger),
    _route("/docs", "pages", docs_page.docs_page),
    _route("/static/{file}", "", static_files.get_static),
    _route("/openapi.json", "", openapi.get_openapi),
    Route("/metrics", metrics.endpoint),
    Route("/health/liveness", liveness),
    Route("/health/readiness", readiness),
]
