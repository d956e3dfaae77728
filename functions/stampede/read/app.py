"""The read service: cutouts and light curves by id over HTTP. It has no state but caches."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stampede import metrics
from stampede.errors import StampedeError
from stampede.read import (
    bulk,
    cutouts,
    error_handlers,
    html,
    ledger,
    lightcurves,
    openapi,
    thumbnails,
)
from stampede.read.cors import Cors
from stampede.read.metrics_middleware import MetricsMiddleware
from stampede.read.service import ReadService, service_of
from stampede.settings import Settings
from stampede.store.objects import Objects
from stampede.store.open import open_objects

# Longest time that a thread keeps the interpreter from the event loop, which needs it for every
# packet. 8 cutouts at a time have a p99 of 52 ms with Python's default of 5 ms, 36 ms with this
# (five rounds).
SWITCH_SECONDS = 0.0005


def make_app(settings: Settings, objects: Objects | None = None) -> Starlette:
    """The ASGI application; `objects` replaces the store that the settings name."""
    if objects is None:
        objects = open_objects(settings)
    service = ReadService.over(objects, settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sys.setswitchinterval(SWITCH_SECONDS)
        yield
        service.close()

    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(MetricsMiddleware), Middleware(Cors)],
        exception_handlers={
            StampedeError: error_handlers.on_stampede_error,
            HTTPException: error_handlers.on_http_exception,
            Exception: error_handlers.on_bug,
        },
        lifespan=lifespan,
    )
    app.state.service = service
    return app


async def liveness(request: Request) -> Response:
    """The process answers."""
    return JSONResponse({"status": "alive"}, headers={"Cache-Control": "no-store"})


async def readiness(request: Request) -> Response:
    """The store answers."""
    service = service_of(request)
    await service.run(service.lookup.check_store)
    return JSONResponse({"status": "ready"}, headers={"Cache-Control": "no-store"})


ROUTES = [
    Route("/", html.front_page),
    Route("/find", html.find),
    Route("/objects/{object_id}", html.object_page),
    Route("/alerts/{alert_id}", html.alert_page),
    Route("/v1/alerts/{alert_id}", cutouts.get_alert),
    Route("/v1/alerts/{alert_id}/cutouts/{kind}", cutouts.get_cutout),
    Route("/v1/alerts/{alert_id}/thumbnail", thumbnails.get_thumbnail),
    Route("/v1/objects/{object_id}/lightcurve", lightcurves.get_light_curve),
    Route("/v1/cutouts", bulk.post_cutouts, methods=["POST"]),
    Route("/v1/lightcurves", bulk.post_light_curves, methods=["POST"]),
    Route("/v1/ledger", ledger.get_ledger),
    Route("/openapi.json", openapi.get_openapi),
    Route("/metrics", metrics.endpoint),
    Route("/health/liveness", liveness),
    Route("/health/readiness", readiness),
]
