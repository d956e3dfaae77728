"""Answers that a cache can hold and a reader can have in part: RFC 9110, sections 8.8, 13, 14."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

FOR_EVER = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def etag(*parts: object) -> str:
    """A strong entity tag: a digest of whatever settles the bytes."""
    text = b"\n".join(p if isinstance(p, bytes) else str(p).encode() for p in parts)
    return f'"{hashlib.blake2b(text, digest_size=12).hexdigest()}"'


class Representation(NamedTuple):
    """One form of a resource: its tag, its type, and the headers that go with it."""

    tag: str
    media_type: str
    headers: Mapping[str, str] = {}
    cache: str = FOR_EVER

    def known(self, request: Request) -> Response | None:
        """304 where the reader has this already, else None: its body need not be made."""
        have = request.headers.get("if-none-match", "")
        tags = [tag.strip().removeprefix("W/") for tag in have.split(",")]
        if self.tag not in tags and have.strip() != "*":
            return None
        about = {k: v for k, v in self.headers.items() if not k.startswith("Content-")}
        return Response(None, 304, {"ETag": self.tag, "Cache-Control": self.cache, **about})

    def answer(self, request: Request, body: bytes) -> Response:
        """All of `body`, or the one range of it that was asked for (206)."""
        headers = {
            "ETag": self.tag,
            "Cache-Control": self.cache,
            "Accept-Ranges": "bytes",
            **self.headers,
        }
        span = _span(request, self.tag, len(body))
        if span is None:
            return Response(body, 200, headers, self.media_type)
        start, stop = span
        if start >= stop:
            return Response(b"", 416, {"Content-Range": f"bytes */{len(body)}"})
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
        return Response(body[start:stop], 206, headers, self.media_type)


def _span(request: Request, tag: str, size: int) -> tuple[int, int] | None:
    """The one range asked for as [start, stop); None sends everything, as does an odd request."""
    found = _RANGE.fullmatch(request.headers.get("range", "").replace(" ", ""))
    if not found or request.headers.get("if-range", tag) != tag or request.method != "GET":
        return None
    first, last = found.groups()
    if first:
        if last and int(last) < int(first):
            return None
        return int(first), min(int(last) + 1, size) if last else size
    if last:
        return max(size - int(last), 0), size
    return None


def preferred(header: str, offers: Iterable[str]) -> str | None:
    """The offer that an Accept or Accept-Encoding header likes best; the first of equals.

    None where it likes none of them.
    """
    offers = list(offers)
    wishes = []
    for wish in header.split(","):
        name, *parameters = (part.strip().lower() for part in wish.split(";"))
        quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        wishes.append((name, float(quality) if re.fullmatch(r"[01](\.\d*)?", quality) else 0.0))

    def liking(offer: str) -> float:
        names = (offer.lower(), offer.lower().partition("/")[0] + "/*", "*/*", "*")
        for name in names:  # the most particular wish counts
            for wished, quality in wishes:
                if wished == name:
                    return quality
        return 0.0

    best = max(offers, key=liking)
    return best if liking(best) > 0 else None
