"""CORS headers: pages of other origins may read, since notebooks run in browsers too.

Everything here is public, so every origin may read it. The response is the same for every origin,
so a cache needs one copy.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = [
    (b"access-control-allow-origin", b"*"),
    (
        b"access-control-expose-headers",
        b"ETag, Content-Range, Content-Disposition, Retry-After, Stampede-Incomplete, "
        b"Stampede-View-Age",
    ),
]
_PREFLIGHT = [
    *_HEADERS,
    (b"access-control-allow-methods", b"GET, HEAD, POST"),
    (b"access-control-allow-headers", b"*"),
    (b"access-control-max-age", b"86400"),
]


class Cors:
    """ASGI middleware after the Fetch standard, section 3.3."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a preflight request; add the headers to the response of any other request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        names = {name for name, _ in scope["headers"]}
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in names:
            await send({"type": "http.response.start", "status": 204, "headers": _PREFLIGHT})
            await send({"type": "http.response.body"})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        await self.app(scope, receive, send_with_headers)
