"""What a reader is told when an answer cannot be given: RFC 9457, application/problem+json.

The ``type`` of a problem is stable: ``urn:stampede:problem:`` and the error's name.
"""

import http
from collections.abc import Mapping

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stampede.errors import StampedeError
from stampede.images.png import placeholder
from stampede.read.pages import POLICY, problem_page
from stampede.read.problems import BadParameter

log = structlog.get_logger()


def problem(error: StampedeError) -> dict[str, str | int]:
    """The members of the problem document of an error."""
    members: dict[str, str | int] = {
        "type": f"urn:stampede:problem:{error.name}",
        "title": error.name.replace("-", " ").capitalize(),
        "status": error.status,
        "detail": error.message,
    }
    if isinstance(error, BadParameter):
        members["parameter"] = error.parameter
    return members


def answer(
    request: Request, members: dict[str, str | int], headers: Mapping[str, str] | None = None
) -> Response:
    """A problem as JSON; on the pages for people as a page; in a picture's place as a picture."""
    status = int(members["status"])
    headers = {"Cache-Control": "no-store", **(headers or {})}
    accepts = request.headers.get("accept", "")
    if accepts.startswith("image/"):
        return Response(placeholder(), status, headers, "image/png")
    if "text/html" in accepts and not request.url.path.startswith("/v1/"):
        page = problem_page(str(members["title"]), str(members["detail"]))
        headers = {**headers, "Content-Security-Policy": POLICY}
        return Response(page, status, headers, "text/html; charset=utf-8")
    return JSONResponse(members, status, headers, "application/problem+json")


async def on_error(request: Request, error: Exception) -> Response:
    """The one handler of what Stampede itself raises."""
    assert isinstance(error, StampedeError)
    if error.status >= 500:
        log.error("read failed", path=request.url.path, problem=error.name, detail=error.message)
    retry = {"Retry-After": "5"} if error.status in (429, 503) else None
    return answer(request, problem(error), retry)


async def on_http(request: Request, error: Exception) -> Response:
    """No such route, or not with this method."""
    assert isinstance(error, HTTPException)
    phrase = http.HTTPStatus(error.status_code).phrase
    members: dict[str, str | int] = {
        "type": "about:blank",
        "title": phrase,
        "status": error.status_code,
        "detail": f"{request.method} {request.url.path}: {phrase.lower()}. Routes: /openapi.json",
    }
    return answer(request, members, error.headers)


async def on_bug(request: Request, error: Exception) -> Response:
    """Anything else is our mistake; what it was is in the log, not in the answer."""
    log.error("read failed", path=request.url.path, problem="internal", exc_info=error)
    return answer(request, problem(StampedeError("Something went wrong here; it was logged.")))
