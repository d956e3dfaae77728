"""What a client of another server asks: parameters in the query, in a form or in JSON."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from math import isfinite
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import parse_qsl

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stampede.errors import TooLarge
from stampede.lookup.errors import BadParameter
from stampede.lookup.lookup import Lookup
from stampede.read.errors import NotHeld
from stampede.read.route import Handler, route
from stampede.read.service import service_of

P = ParamSpec("P")
T = TypeVar("T")

MOST_BYTES = 64 << 10
"""Most bytes of a body: the ids of some 3,000 objects."""
FEW = 10
"""Light curves that are one small query; more are a large one."""
FORM = "application/x-www-form-urlencoded"


def get(path: str, scope: str, handler: Handler) -> Route:
    """A route whose handler checks the parameters itself, by `parameters_of`."""
    return route(path, scope, handler, others=True)


def both(path: str, scope: str, handler: Handler) -> list[Route]:
    """The routes of a path that takes its parameters by GET or by POST."""
    return [route(path, scope, handler, method=method, others=True) for method in ("GET", "POST")]


def absent(path: str, what: str, who: str) -> list[Route]:
    """The routes of a path whose answer no store of alerts has: `what` it is, and `who` has it."""

    async def not_held(request: Request) -> Response:
        raise NotHeld(f"Stampede keeps what a survey sent, and so no {what}: ask {who}")

    return both(path, "lightcurves", not_held)


async def parameters_of(request: Request, known: Collection[str]) -> QueryParams:
    """The parameters of a request, by name, those of the body as text too.

    Empty ones are left out, as others do. Raises `BadParameter` at one that is not known, and
    `TooLarge`.
    """
    asked = request.query_params.multi_items()
    if request.method == "POST" and (body := await _body(request)):
        is_form = request.headers.get("content-type", "").startswith(FORM)
        asked += _in_form(body) if is_form else _in_json(body)
    for name, _ in asked:
        if name not in known:
            names = ", ".join(known)
            raise BadParameter(name[:40], f"unknown parameter {name[:40]!r}. Known: {names}")
    return QueryParams([(name, value) for name, value in asked if value])


async def run(
    request: Request,
    count: int,
    function: Callable[Concatenate[Lookup, P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """The result of a function that reads `count` light curves, as a small or a large query.

    Raises `TooManyQueries`.
    """
    service = service_of(request)
    if count <= FEW:
        return await service.run(function, service.lookup, *args, **kwargs)
    with service.bulk_limit.slot(request.state.client):
        return await service.run_bulk(function, service.bulk_lookup, *args, **kwargs)


def wanted(asked: QueryParams, *names: str) -> list[str]:
    """The values of parameters that must be there. Raises `BadParameter`."""
    for name in names:
        if name not in asked:
            raise BadParameter(name, f"{name} is missing")
    return [asked[name] for name in names]


def flag(asked: QueryParams, name: str, default: bool = False) -> bool:
    """Whether a parameter is true, as Python, JSON or a form writes it."""
    text = asked.get(name, str(default)).lower()
    if text not in ("true", "1", "false", "0"):
        raise BadParameter(name, f"must be true or false: {text[:40]!r}")
    return text in ("true", "1")


def span(asked: QueryParams, name: str) -> tuple[float, float]:
    """The least and the greatest value in a parameter that is given once or twice."""
    values = [_number(name, text) for text in asked.getlist(name)]
    if len(values) > 2:
        raise BadParameter(name, f"{name} is given more than twice")
    return (values[0] if values else float("-inf")), (values[1] if values[1:] else float("inf"))


def refuse(asked: Mapping[str, Any], names: Collection[str], what: str, who: str) -> None:
    """Raise `NotHeld` at a parameter that chooses by what Stampede does not keep."""
    for name in names:
        if name in asked:
            raise NotHeld(f"{name}: Stampede keeps what a survey sent, and so no {what}: ask {who}")


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise BadParameter(name, f"{name} must be a number: {text[:40]!r}")
    return value


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise TooLarge(f"the parameters take more than {MOST_BYTES:,} bytes")
    return bytes(body)


def _in_form(body: bytes) -> list[tuple[str, str]]:
    return parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)


def _in_json(body: bytes) -> list[tuple[str, str]]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise BadParameter("body", "the body is neither JSON nor a form") from None
    if not isinstance(found, dict):
        raise BadParameter("body", 'the body must be JSON such as {"ra": 10.5}')
    return [*_texts(found)]


def _texts(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in found.items():
        if isinstance(value, (dict, list)):
            raise BadParameter(_plain(name[:40]), f"{name[:40]} must be a text or a number")
        if value is not None:
            yield _plain(name), _plain(str(value))


def _plain(text: str) -> str:
    """A text without lone surrogates, which JSON may have and no response could carry."""
    return text.encode("utf-8", "replace").decode()
