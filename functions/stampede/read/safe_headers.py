"""Headers by which a browser does no more with an answer than show it."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

NOTHING = b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
"""Content-Security-Policy of answers that set none themselves, as pages do. Browsers show images
and JSON with a style of their own."""

_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"content-security-policy": NOTHING,
}


class SafeHeaders:
    """ASGI middleware that adds these headers to every answer that lacks them."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and add the headers to its answer."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ())]
                known = {name.lower() for name, _ in headers}
                missing = (item for item in _HEADERS.items() if item[0] not in known)
                message["headers"] = [*headers, *missing]
            await send(message)

        await self.app(scope, receive, send_with_headers)
