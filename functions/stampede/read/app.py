"""The read service: cutouts and light curves by id over HTTP.

It holds no state but caches. What blocks runs in threads, small queries and large ones in
pools (and tables) of their own, so that no small query waits behind a large one.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stampede import metrics
from stampede.errors import StampedeError
from stampede.read import bulk as bulk_routes
from stampede.read import cutouts, errors, html, ledger, lightcurves, openapi, thumbnails
from stampede.read.cors import Cors
from stampede.read.ledger import Ledger
from stampede.read.lookup import Lookup
from stampede.read.metrics_middleware import MetricsMiddleware
from stampede.settings import Settings
from stampede.store.objects import Objects
from stampede.store.open import open_objects

# What they do is mostly wait for the store: what is in memory is answered without them. With 2, 4
# and 8 the p99 of 8 clients at once is the same on a Ceph next door, and a site's is further away.
SMALL_THREADS = 8
# Beside two queries of 15,000 ids a cutout's p99 is 165 ms with 8, and 108 ms with 4, at the same
# rate of the queries (one round, in turn); beside two of 1,000 ids 113 and 72 ms, at 4 % less.
BULK_THREADS = 4
# How long a thread may keep the interpreter from the loop, which wants it for every packet. With
# the 5 ms that Python gives it 8 cutouts at a time have a p99 of 52 ms, with this 36 (five rounds).
TURN_SECONDS = 0.0005

Run = Callable[..., Awaitable[Any]]


def make_app(settings: Settings, objects: Objects | None = None) -> Starlette:
    """The ASGI application; `objects` stands in for the store of the settings."""
    if objects is None:
        objects = open_objects(settings)
    small = ThreadPoolExecutor(SMALL_THREADS, "small")
    bulk = ThreadPoolExecutor(BULK_THREADS, "bulk")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        sys.setswitchinterval(TURN_SECONDS)
        yield
        for pool in (small, bulk):
            pool.shutdown(wait=False, cancel_futures=True)
        app.state.lookup.close()
        app.state.bulk_lookup.close()

    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(MetricsMiddleware), Middleware(Cors)],
        exception_handlers={
            StampedeError: errors.on_error,
            HTTPException: errors.on_http,
            Exception: errors.on_bug,
        },
        lifespan=lifespan,
    )
    app.state.settings = settings
    app.state.lookup = Lookup(objects, settings)
    app.state.bulk_lookup = Lookup(objects, settings, sure=False)
    app.state.small, app.state.bulk = _runner(small), _runner(bulk)
    app.state.under_way = 0
    app.state.ledger = Ledger(app.state.lookup)
    return app


def _runner(pool: ThreadPoolExecutor) -> Run:
    def run(function: Callable, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(pool, partial(function, *args, **kwargs))

    return run


async def liveness(request: Request) -> Response:
    """The process answers."""
    return JSONResponse({"status": "alive"}, headers={"Cache-Control": "no-store"})


async def readiness(request: Request) -> Response:
    """The store answers."""
    await request.app.state.small(request.app.state.lookup.reachable)
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
    Route("/v1/cutouts", bulk_routes.post_cutouts, methods=["POST"]),
    Route("/v1/lightcurves", bulk_routes.post_light_curves, methods=["POST"]),
    Route("/v1/ledger", ledger.get_ledger),
    Route("/openapi.json", openapi.get_openapi),
    Route("/metrics", metrics.endpoint),
    Route("/health/liveness", liveness),
    Route("/health/readiness", readiness),
]
