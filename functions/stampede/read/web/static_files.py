"""Routes of the pages' own files, style sheet and scripts.

An address has a digest of the file's content.
"""

from functools import cache
from hashlib import blake2b
from pathlib import Path

from isal import igzip
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from stampede.alerts import surveys
from stampede.errors import NotFound
from stampede.read.web.conditional import Representation, etag, preferred

_FOLDER = Path(__file__).parents[1] / "static"
_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}

ROBOTS = """User-agent: *
Disallow: /alerts/
Disallow: /cone
Disallow: /find
Disallow: /nights
Disallow: /objects/
Disallow: /proofs
Disallow: /v1/
"""
"""A search engine would ask for each alert that is stored."""


@cache
def _files() -> dict[str, tuple[str, dict[str, bytes]]]:
    """By address the type of each file, and its content by encoding."""
    found = {}
    for path in _FOLDER.iterdir():
        if path.suffix in _TYPES:
            content = path.read_bytes()
            if path.name == "page.css":
                content += band_rules().encode()
            digest = blake2b(content, digest_size=8).hexdigest()
            contents = {"gzip": igzip.compress(content, mtime=0), "identity": content}
            found[f"{path.stem}.{digest}{path.suffix}"] = (_TYPES[path.suffix], contents)
    return found


def band_rules() -> str:
    """The part of the style sheet with the surveys' bands: their colours, and what hides each."""
    light = dark = ""
    for name, band in surveys.bands().items():
        hidden = f"section:has(#show-{name}:not(:checked)) .plot .band-{name}"
        light += f".band-{name} {{ color: {band.light}; }}\n{hidden} {{ display: none; }}\n"
        dark += f"  .band-{name} {{ color: {band.dark}; }}\n"
    return f"{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n"


def address(name: str) -> str:
    """The address of a file, for example of ``object.js``."""
    stem, _, suffix = name.partition(".")
    return "/static/" + next(
        one for one in _files() if one.startswith(f"{stem}.") and one.endswith(suffix)
    )


async def get_static(request: Request) -> Response:
    """`/static/{file}`: one file, for ever the same."""
    name = request.path_params["file"]
    if name not in _files():
        raise NotFound("there is no such file: load the page again")
    media_type, contents = _files()[name]
    headers = {"Vary": "Accept-Encoding"}
    accepted = request.headers.get("accept-encoding", "")
    encoding = preferred(accepted, tuple(contents)) or "identity"
    if encoding != "identity":
        headers["Content-Encoding"] = encoding
    content = contents[encoding]
    response = Representation(etag(content), media_type, headers)
    return response.not_modified(request) or response.respond(request, content)


async def get_robots(request: Request) -> Response:
    """`/robots.txt` (RFC 9309): what search engines are asked not to visit."""
    return PlainTextResponse(ROBOTS)


async def get_icon(request: Request) -> Response:
    """`/favicon.ico`: the picture in a browser's tab, also of images and JSON."""
    content = (_FOLDER / "favicon.svg").read_bytes()
    headers = {"Cache-Control": "public, max-age=86400"}
    return Response(content, media_type="image/svg+xml", headers=headers)
