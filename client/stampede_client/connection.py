"""What the two drivers share: headers, the URL of a request, and how a plan goes on."""

import random
import socket
import ssl
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx

from stampede_client.errors import BadInput, Incomplete, IncompleteWarning, Unavailable
from stampede_client.exchange import INCOMPLETE, Request, ServerResponse, raise_for
from stampede_client.retries import is_temporary, wait

REFUSALS = 2
"""Times that a refused connection is tried again: for a second and a half."""


def options(url: str, token: str | None, timeout: float) -> dict[str, Any]:
    """The arguments of an httpx client. Raises `BadInput`."""
    parsed = httpx.URL(url) if "://" in url else httpx.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise BadInput(f"{url!r} is no URL of a server; give one like http://127.0.0.1:8080")
    headers = {"User-Agent": "stampede-client"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return {"base_url": url, "headers": headers, "timeout": timeout}


def arguments(request: Request) -> dict[str, Any]:
    """The arguments of httpx's `request`."""
    method = "GET" if request.json is None else "POST"
    return {
        "method": method,
        "url": request.path,
        "params": dict(request.query),
        "json": request.json,
    }


def response_of(response: httpx.Response) -> ServerResponse:
    """The response in a response that has been read."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return ServerResponse(str(response.url), response.status_code, headers, response.content)


def completed(request: Request, response: ServerResponse, strict: bool) -> ServerResponse:
    """The answer with its content, if it succeeded.

    Warns if the server says that it may lack something. Raises `Incomplete` instead if `strict`,
    and `UnexpectedResponse`.
    """
    if response.status != 200:
        return response
    content = request.read(response.body)
    why = response.headers.get(INCOMPLETE) if content.lacking is None else content.lacking
    if why:
        text = f"{response.url} may lack rows or images that are stored: {why}; tell the operator"
        if strict:
            raise Incomplete(text)
        warnings.warn(text, IncompleteWarning, stacklevel=5)
    return replace(response, content=content.value)


class Attempts:
    """The attempts of one request: says whether to wait and try again.

    Both methods return the seconds to wait, and raise `Unavailable` to give up.
    """

    def __init__(self, base: str) -> None:
        self._base, self._failed = base, 0

    def after_response(self, response: ServerResponse) -> float | None:
        """After a response; None if it is final."""
        if not is_temporary(response):
            return None
        seconds = self._wait(response.headers.get("retry-after"))
        if seconds is None:
            raise_for(response)
        return seconds

    def after_failure(self, error: httpx.RequestError) -> float:
        """After a connection that failed or was cut, or a response that cannot be unpacked."""
        hopeless = _is_permanent(error) or (_is_refused(error) and self._failed >= REFUSALS)
        seconds = None if hopeless else self._wait(None)
        if seconds is None:
            advice = "check the URL and that the server runs"
            if _is_plain(error):
                advice = "it does not speak TLS: try http:// in place of https://"
            raise Unavailable(
                f"no answer from {self._base}: {error or type(error).__name__}; {advice}"
            ) from error
        return seconds

    def _wait(self, retry_after: str | None) -> float | None:
        self._failed += 1
        return wait(self._failed, retry_after, time.time(), random.random())


def _is_permanent(error: BaseException) -> bool:
    """Whether every attempt would fail: an unknown host, no TLS, a certificate not trusted."""
    return _is_plain(error) or any(
        isinstance(cause, ssl.SSLCertVerificationError)
        or (isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME)
        for cause in _causes(error)
    )


def _is_plain(error: BaseException) -> bool:
    """Whether a server without TLS was asked for it."""
    return any(
        isinstance(cause, ssl.SSLError) and cause.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST")
        for cause in _causes(error)
    )


def _is_refused(error: BaseException) -> bool:
    """Whether nothing listens there: it may be starting again."""
    return any(isinstance(cause, ConnectionRefusedError) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it came from."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
