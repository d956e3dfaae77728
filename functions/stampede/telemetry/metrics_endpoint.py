"""The HTTP endpoint of Prometheus: the metrics of the modules that the process uses."""

from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response


async def endpoint(_: Any) -> Response:
    """Serve `/metrics`."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
