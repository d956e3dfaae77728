"""CORS headers: whether pages of other origins may read, since notebooks run in browsers too.

By default every origin may read, because everything here is public. No origin may send cookies or
other credentials that a browser adds by itself (``Access-Control-Allow-Credentials`` is never
sent): a page needs a token of its own where tokens are demanded.
"""

from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Headers = list[tuple[bytes, bytes]]

_EXPOSED = (
    b"ETag, Content-Range, Content-Disposition, Retry-After, Stampede-Incomplete, "
    b"Stampede-View-Age, WWW-Authenticate"
)
_PREFLIGHT = [
    (b"access-control-allow-methods", b"GET, HEAD, POST"),
    (b"access-control-allow-headers", b"Authorization, *"),  # `*` does not mean Authorization
    (b"access-control-max-age", b"86400"),
]


class Cors:
    """ASGI middleware after the Fetch standard, section 3.3.

    Parameters
    ----------
    origins
        Origins like ``https://portal.example``, whose pages may read; ``*`` for all.
    """

    def __init__(self, app: ASGIApp, origins: Iterable[str]) -> None:
        self.app = app
        self._origins = {origin.encode() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a preflight request; add the headers to the response of any other request."""
        if scope["type"] != "http" or not self._origins:
            await self.app(scope, receive, send)
            return
        request = dict(scope["headers"])
        headers = self._headers(request.get(b"origin"))
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in request:
            answer = [*headers, *_PREFLIGHT]
            await send({"type": "http.response.start", "status": 204, "headers": answer})
            await send({"type": "http.response.body"})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *headers]
            await send(message)

        await self.app(scope, receive, send_with_headers)

    def _headers(self, origin: bytes | None) -> Headers:
        if b"*" in self._origins:  # the same for every origin, so a cache needs one copy
            return [
                (b"access-control-allow-origin", b"*"),
                (b"access-control-expose-headers", _EXPOSED),
            ]
        vary = (b"vary", b"Origin")
        if origin is None or origin not in self._origins:
            return [vary]
        return [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED),
            vary,
        ]
