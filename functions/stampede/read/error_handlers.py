"""From exceptions to HTTP responses: problem documents (RFC 9457, application/problem+json)."""

import http
from collections.abc import Mapping
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Match, Route

from stampede.errors import StampedeError
from stampede.http.problem_details import problem_document
from stampede.images.png import placeholder
from stampede.lookup import response_warnings
from stampede.lookup.errors import BadParameter
from stampede.read.errors import AccessError, NotHeld
from stampede.telemetry.logs import get_logger

Problem = Mapping[str, str | int | list[str]]

CLOSED = (
    "this server shows its pages only to those who have a token, which a browser does not send. "
    "Ask those who run it for access. If you have a token, the command stampede, the Python client "
    "and curl can send it: see /help#programs"
)
"""What a page says of a route that needs a token."""

log = get_logger()


async def on_stampede_error(request: Request, error: Exception) -> Response:
    """Respond to an error that Stampede itself raised."""
    if not isinstance(error, StampedeError):
        raise error
    if error.status >= 500 and not isinstance(error, NotHeld):  # which no operator can mend
        log.error(
            "read failed", path=request.scope["path"], problem=error.name, detail=error.message
        )
    problem = problem_document(error)
    if isinstance(error, BadParameter):
        problem["parameter"] = error.parameter
    headers = {"Retry-After": "5"} if error.status in (429, 503) else {}
    if isinstance(error, AccessError):
        headers |= error.headers
    return problem_response(request, problem, headers)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Respond to a path that has no route, or to a method that the route does not have."""
    if not isinstance(error, HTTPException):
        raise error
    phrase = http.HTTPStatus(error.status_code).phrase
    path = request.scope["path"]  # `request.url` fails on an odd Host
    if error.status_code == http.HTTPStatus.NOT_FOUND and _has_slash_too_many(path):
        query = request.scope["query_string"].decode("latin-1")
        where = quote(path.rstrip("/")) + (f"?{query}" if query else "")
        return RedirectResponse(where, http.HTTPStatus.PERMANENT_REDIRECT)
    headers = error.headers
    if error.status_code == http.HTTPStatus.METHOD_NOT_ALLOWED:
        headers = {"Allow": ", ".join(_methods(request))}
    problem: Problem = {
        "type": "about:blank",
        "title": phrase,
        "status": error.status_code,
        "detail": f"{request.method} {path}: {phrase.lower()}. Routes: /openapi.json",
    }
    return problem_response(request, problem, headers)


def _methods(request: Request) -> list[str]:
    """The methods of the path: those of all its routes, of which each has its own."""
    routes = [each for each in request.app.routes if isinstance(each, Route)]
    here = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in here for method in route.methods or ()})


def _for_people(problem: Problem, path: str) -> tuple[str, str]:
    """Title and detail of a problem for a browser's page, which can follow no header."""
    title, detail = str(problem["title"]), str(problem["detail"])
    status, name = problem["status"], str(problem.get("parameter", ""))
    if status == http.HTTPStatus.UNAUTHORIZED:
        return "This page is not public", CLOSED
    if problem["type"] == "about:blank":
        if status == http.HTTPStatus.NOT_FOUND:
            return "No such page", f"there is no page {path}: look for an id or a position above"
        return title, f"the page {path} cannot be asked for in this way"
    return title, detail if name in detail else f"{name} {detail}"


def _has_slash_too_many(path: str) -> bool:
    """Whether a path ends with a slash; not one that a browser takes for another host."""
    return path.endswith("/") and len(path) > 1 and not path.startswith(("//", "/\\"))


async def on_disconnect(request: Request, error: Exception) -> Response:
    """End a request whose client has left before its body had come. Nobody reads the response."""
    return Response(status_code=400)


async def on_bug(request: Request, error: Exception) -> Response:
    """Respond to any other exception: log it, and do not show it to the client."""
    log.error("read failed", path=request.scope["path"], problem="internal", exc_info=error)
    internal = StampedeError("Internal error; the details are in the log.")
    return problem_response(request, problem_document(internal))


def problem_response(
    request: Request, problem: Problem, headers: Mapping[str, str] | None = None
) -> Response:
    """A problem as JSON, as a page for a browser, or as an image in place of an image."""
    status = int(str(problem["status"]))
    if why := response_warnings.incomplete():
        problem = {**problem, "incomplete": why}
    headers = {"Cache-Control": "no-store", **(headers or {})}
    accepts = request.headers.get("accept", "")
    if accepts.startswith("image/") and status != http.HTTPStatus.NOT_ACCEPTABLE:
        return Response(placeholder(), status, headers, "image/png")
    if "text/html" in accepts and not request.scope["path"].startswith("/v1/"):
        # Imported here, as in `lazy_routes`: a first cutout needs no page.
        from stampede.read.pages.page import POLICY, PageResponse, problem_page

        page = problem_page(*_for_people(problem, request.scope["path"]))
        headers = {**headers, "Content-Security-Policy": POLICY}
        return PageResponse(page, status, headers)
    return JSONResponse(problem, status, headers, "application/problem+json")
