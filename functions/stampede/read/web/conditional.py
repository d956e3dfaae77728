"""Conditional and partial responses: ETag, If-None-Match, Range (RFC 9110, 8.8, 13 and 14)."""

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from stampede.lookup.errors import BadParameter

IMMUTABLE = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"

_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)")
_LONGEST = 18  # digits of a position in a body


def etag(*parts: object) -> str:
    """A strong entity tag: a digest of everything that determines the bytes."""
    text = b"\n".join(p if isinstance(p, bytes) else str(p).encode() for p in parts)
    return f'"{hashlib.blake2b(text, digest_size=12).hexdigest()}"'


class Representation(NamedTuple):
    """One representation of a resource: its tag, its type and its other headers."""

    tag: str
    media_type: str
    headers: Mapping[str, str] = {}
    cache_control: str = IMMUTABLE

    def not_modified(self, request: Request) -> Response | None:
        """A 304 if the client has this representation. Otherwise None: it needs the body."""
        header = request.headers.get("if-none-match", "")
        tags = [tag.strip().removeprefix("W/") for tag in header.split(",")]
        if self.tag not in tags and header.strip() != "*":
            return None
        headers = {k: v for k, v in self.headers.items() if not k.startswith("Content-")}
        return Response(
            None, 304, {"ETag": self.tag, "Cache-Control": self.cache_control, **headers}
        )

    def respond(self, request: Request, body: bytes) -> Response:
        """All of `body`, or the one range that the client asks for (206)."""
        headers = {
            "ETag": self.tag,
            "Cache-Control": self.cache_control,
            "Accept-Ranges": "bytes",
            **self.headers,
        }
        span = _requested_range(request, self.tag, len(body))
        if span is None:
            return Response(body, 200, headers, self.media_type)
        start, stop = span
        if start >= stop:
            return Response(b"", 416, {"Content-Range": f"bytes */{len(body)}"})
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
        return Response(body[start:stop], 206, headers, self.media_type)


def _requested_range(request: Request, tag: str, size: int) -> tuple[int, int] | None:
    """The one range that the client asks for, as [start, stop).

    Returns None (send the whole body) if the request has no range, several, or an invalid one.
    Raises `BadParameter` if a position has more digits than any body has bytes.
    """
    found = _RANGE.fullmatch(request.headers.get("range", "").replace(" ", ""))
    if not found or request.headers.get("if-range", tag) != tag or request.method != "GET":
        return None
    first, last = found.groups()
    if max(len(first), len(last)) > _LONGEST:
        raise BadParameter("Range", f"a position in Range has more than {_LONGEST} digits")
    if first:
        if last and int(last) < int(first):
            return None
        return int(first), min(int(last) + 1, size) if last else size
    if last:
        return max(size - int(last), 0), size
    return None


@lru_cache(64)  # 9 us; most requests have the header of one before
def preferred(header: str, offers: tuple[str, ...]) -> str | None:
    """The offer that an Accept or Accept-Encoding header prefers; of equals, the first.

    None if the header accepts none of them.
    """
    qualities: list[tuple[str, float]] = []
    for item in header.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        valid = re.fullmatch(r"[01](\.[0-9]*)?", quality)
        qualities.append((name, float(quality) if valid else 0.0))

    def quality_of(offer: str) -> float:
        names = (offer.lower(), offer.lower().partition("/")[0] + "/*", "*/*", "*")
        for name in names:  # the most specific item of the header decides
            for item, quality in qualities:
                if item == name:
                    return quality
        return 0.0

    best = max(offers, key=quality_of)
    return best if quality_of(best) > 0 else None
