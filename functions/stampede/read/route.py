"""A route of the read service: who may ask, and with which parameters."""

from collections.abc import Awaitable, Callable
from functools import wraps

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stampede.read.service import service_of
from stampede.read.web import parameters

Handler = Callable[[Request], Awaitable[Response]]

POINTS = ("survey", "band", "forced", "start", "end", "withdrawn", "magnitudes")
LIGHT_CURVE = ("format", "responseformat", *POINTS)
"""Parameters of light curves."""


def route(
    path: str, scope: str, handler: Handler, *known: str, method: str = "GET", others: bool = False
) -> Route:
    """A route of a scope; it refuses query parameters that are not `known`, unless `others`."""

    @wraps(handler)
    async def checked(request: Request) -> Response:
        access = service_of(request).access
        request.state.client = await access.check(request, scope)
        if not others:
            parameters.check_names(request.query_params, known)
        return access.mark(await handler(request), scope)

    return Route(path, checked, methods=[method])
