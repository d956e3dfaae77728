"""The routes that every process has: its metrics and its health."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from stampede.telemetry import metrics_endpoint

Fault = Callable[[], str | None]
"""Says what is wrong; None if nothing is."""


def none() -> None:
    """No fault: a process that responses is well."""


def status_routes(*, not_alive: Fault = none, not_ready: Fault = none) -> list[Route]:
    """The routes `/metrics` and `/health/…`.

    Parameters
    ----------
    not_alive
        Why the process must be started again.
    not_ready
        Why it does not do its work now.
    """
    return [
        Route("/metrics", metrics_endpoint.endpoint),
        Route("/health/liveness", health(not_alive)),
        Route("/health/readiness", health(not_ready)),
    ]


def health(fault: Fault) -> Callable[[Request], Awaitable[Response]]:
    """A handler that responses 200, or 503 with the fault."""

    async def answer(_: Request) -> Response:
        if reason := fault():
            return PlainTextResponse(f"{reason}\n", 503)
        return PlainTextResponse("ok\n")

    return answer
