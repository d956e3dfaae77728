"""One request and its response, as data: nothing here uses the network.

A *plan* is a generator that yields requests, is sent their responses, and returns the result. The
drivers, `stampede_client.client` and `stampede_client.async_client`, run plans: so each
query is written once.
"""

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias, TypeVar

from stampede_client.errors import (
    AccessDenied,
    BadInput,
    Damaged,
    Gone,
    NotFound,
    StampedeClientError,
    Unavailable,
    UnexpectedResponse,
)

T = TypeVar("T")
INCOMPLETE = "stampede-incomplete"
"""Header: why the response may lack something that is stored."""
_PREFIX = "urn:stampede:problem:"


@dataclass(frozen=True)
class Content:
    """What a successful answer holds.

    `lacking` says why it may lack something, and is empty if it lacks nothing; None if only the
    headers say that.
    """

    value: Any
    lacking: str | None = None


@dataclass(frozen=True)
class Request:
    """A request; `path` is relative to the URL of the server."""

    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    json: Mapping[str, object] | None = None
    """The body of a POST; None for a GET."""
    read: Callable[[bytes], Content] = Content
    """Makes the content of a successful response of its body; may raise `UnexpectedResponse`."""


@dataclass(frozen=True)
class ServerResponse:
    """A whole response; names of `headers` are in lower case. `content` is set if it succeeded."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    content: Any = None


Plan: TypeAlias = Generator[Request, ServerResponse, T]


def ask(request: Request) -> Plan[Any]:
    """The content of a successful answer. Raises `StampedeClientError`."""
    response = yield request
    if response.status == 200:
        return response.content
    raise_for(response)


def problem_of(response: ServerResponse) -> dict[str, object]:
    """The problem document of a response (RFC 9457); empty if it has none."""
    if not response.headers.get("content-type", "").startswith("application/problem+json"):
        return {}
    try:
        problem = json.loads(response.body)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def raise_for(response: ServerResponse) -> NoReturn:
    """Raise the error that an unsuccessful answer stands for."""
    problem = problem_of(response)
    name = str(problem.get("type", "")).removeprefix(_PREFIX)
    if not problem:
        text = f"{response.url} answered {response.status} without saying why"
        if response.status in _KINDS and response.status not in (404, 502):
            kind, advice = _KINDS[response.status]
            raise kind(f"{text}; {advice}")
        raise UnexpectedResponse(f"{text}; check that this is the URL of a Stampede server")
    kind, advice = _KINDS.get(response.status, (StampedeClientError, "see the server's log"))
    if reasons := response.headers.get(INCOMPLETE):
        advice = f"it may be stored all the same: {reasons}; tell the operator"
    raise kind(f"{problem.get('detail')} ({response.url}); {advice}", name)


_KINDS: dict[int, tuple[type[StampedeClientError], str]] = {
    400: (BadInput, "correct the argument"),
    401: (AccessDenied, 'give a token: connect(url, token="...")'),
    403: (AccessDenied, "ask the operator for a token with this scope"),
    404: (NotFound, "check the id; an alert of this minute may come later"),
    410: (Gone, "the image cannot be had from this server any more"),
    413: (BadInput, "ask for fewer ids at a time"),
    429: (Unavailable, "try again later or ask the operator for a larger allowance"),
    502: (Damaged, "report the id to the operator; other ids are not affected"),
    503: (Unavailable, "try again later"),
    504: (Unavailable, "try again later"),
}
