"""The read service: cutouts and light curves by id over HTTP. It has no state but caches."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.read import error_handlers
from stampede.read.free_memory import giving_back
from stampede.read.routes import ROUTES
from stampede.read.service import ReadService
from stampede.read.web.cors import Cors
from stampede.read.web.middleware import ResponseMiddleware
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects

# Longest time that a thread keeps the interpreter from the event loop, which needs it for every
# packet. 8 cutouts at a time have a p99 of 52 ms with Python's default of 5 ms, 36 ms with this
# (five rounds).
SWITCH_SECONDS = 0.0005


class _App(Starlette):
    """An application with `ResponseMiddleware` around it, also around its responses to bugs."""

    origins: Sequence[str] = ()

    def build_middleware_stack(self) -> ASGIApp:
        return ResponseMiddleware(super().build_middleware_stack(), Cors(self.origins))


def make_app(settings: Settings, objects: Objects | None = None) -> Starlette:
    """The ASGI application; `objects` replaces the store that the settings name."""
    if objects is None:
        objects = open_objects(settings)
    service = ReadService.over(objects, settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sys.setswitchinterval(SWITCH_SECONDS)
        async with giving_back():
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
    _add_lazy_routes(app)
    app.state.service = service
    app.origins = settings.cors_origins.replace(",", " ").split()
    return app


def _add_lazy_routes(app: Starlette) -> None:
    """Add `lazy_routes` with the first request that has none of the other routes."""
    router, not_found = app.router, app.router.default

    async def with_lazy_routes(scope: Scope, receive: Receive, send: Send) -> None:
        # In a thread: other requests are answered meanwhile.
        routes = await asyncio.to_thread(_lazy_routes)
        if router.default is with_lazy_routes:  # else another request has added them meanwhile
            router.routes += routes
            router.default = not_found
        await router.app(scope, receive, send)

    router.default = with_lazy_routes


def _lazy_routes() -> list[BaseRoute]:
    from stampede.read import lazy_routes

    return lazy_routes.ROUTES
