"""Routes by which a platform knows that the process works."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stampede.read.service import service_of


async def liveness(request: Request) -> Response:
    """The process answers."""
    return JSONResponse({"status": "alive"}, headers={"Cache-Control": "no-store"})


async def readiness(request: Request) -> Response:
    """The store answers."""
    service = service_of(request)
    await service.run(service.lookup.check_store)
    return JSONResponse({"status": "ready"}, headers={"Cache-Control": "no-store"})
