"""CORS headers: whether pages of other origins may read, since notebooks run in browsers too.

By default every origin may read, because everything here is public. No origin may send cookies or
other credentials that a browser adds by itself (``Access-Control-Allow-Credentials`` is never
sent): a page needs a token of its own where tokens are demanded.
"""

from collections.abc import Iterable

from starlette.types import Scope

Headers = list[tuple[bytes, bytes]]

_EXPOSED = (
    b"ETag, Content-Range, Content-Disposition, Retry-After, Stampede-Incomplete, "
    b"Stampede-Message-SHA256, Stampede-Rows-Cut, Stampede-View-Age, WWW-Authenticate"
)
_PREFLIGHT = [
    (b"access-control-allow-methods", b"GET, HEAD, POST"),
    (b"access-control-allow-headers", b"Authorization, *"),  # `*` does not mean Authorization
    (b"access-control-max-age", b"86400"),
]


class Cors:
    """The headers of the Fetch standard, section 3.3.

    Parameters
    ----------
    origins
        Origins like ``https://portal.example``, whose pages may read; ``*`` for all.
    """

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = {origin.encode() for origin in origins}
        # For every origin the same, so a cache needs one copy.
        self._for_all = _allowing(b"*") if b"*" in self._origins else None

    def headers(self, scope: Scope) -> Headers:
        """What the response to a request gets."""
        if self._for_all is not None:
            return self._for_all
        if not self._origins:
            return []
        vary = (b"vary", b"Origin")
        origin = _header(scope, b"origin")
        if origin is None or origin not in self._origins:
            return [vary]
        return [*_allowing(origin), vary]

    def preflight(self, scope: Scope) -> Headers:
        """The headers of the response to a preflight request; empty if the request is none."""
        if scope["method"] != "OPTIONS" or not self._origins:
            return []
        if _header(scope, b"access-control-request-method") is None:
            return []
        return [*self.headers(scope), *_PREFLIGHT]


def _allowing(origin: bytes) -> Headers:
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
    ]


def _header(scope: Scope, wanted: bytes) -> bytes | None:
    return next((value for name, value in scope["headers"] if name == wanted), None)
