"""The routes that every process has: its metrics and its health."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from stampede import metrics


def status_routes() -> list[Route]:
    """The routes `/metrics` and `/health/…`."""
    return [
        Route("/metrics", metrics.endpoint),
        Route("/health/liveness", healthy),
        Route("/health/readiness", healthy),
    ]


async def healthy(_: Request) -> Response:
    """Answer 200: the process runs."""
    return PlainTextResponse("ok\n")
