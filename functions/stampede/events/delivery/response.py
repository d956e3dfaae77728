"""The response to an event that was sent, and whose fault a failure is.

The rules are in docs/adr/0002-source-retries.md.
"""

import base64
import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import NamedTuple, Protocol

from stampede.addresses import shown
from stampede.events.cloudevents.structured import fitted
from stampede.http.client import Unreachable
from stampede.http.response_reader import Response

LONGEST_RETRY_AFTER = 300.0  # seconds
RESPONSE_SECONDS = 300.0  # a Knative revision's own limit
_TABLES = re.compile(rb'"tables": ?\[([a-z", ]+)\]')


class Verdict(Enum):
    """The result of one attempt to send an event."""

    ACCEPTED = "accepted"
    REFUSED = "refused"  # the event's fault, for good
    FAILED = "failed"  # perhaps the event's fault: worth another try
    UNCLEAR = "unclear"  # the event's fault if the sink accepts others, otherwise the sink's
    DOWN = "down"  # the sink's fault


class SinkResponse(NamedTuple):
    """How a sink answered an event."""

    verdict: Verdict
    status: int | None  # None: there was no response
    detail: bytes  # the beginning of the body, or what went wrong
    retry_after: float = 0.0

    @property
    def outcome(self) -> str:
        """The status as text, for logs and metrics."""
        return str(self.status) if self.status else "no answer"

    @property
    def reason(self) -> str:
        """Why the event was refused, for people."""
        return reason_of_response(self.detail.decode(errors="replace"))

    @property
    def tables(self) -> list[str]:
        """The tables that lack the event; empty if all that it fills do."""
        # A name in the detail has its quotes escaped.
        found = _TABLES.search(self.detail) if self.detail.startswith(b"{") else None
        return re.findall("[a-z]+", found[1].decode()) if found else []


class Poster(Protocol):
    """What sends an event: `Connections`, or what passes it on within the process."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Send an event, once. Raises what `Connections.post` raises."""


async def post(poster: Poster, url: str, headers: Mapping[str, str], body: bytes) -> SinkResponse:
    """Send an event once. A failure is a response too, and not an exception."""
    try:
        response = await poster.post(url, *fitted(headers, body))
    except Unreachable as error:
        return SinkResponse(Verdict.DOWN, None, str(error).encode())
    except (OSError, TimeoutError) as error:
        return SinkResponse(Verdict.UNCLEAR, None, f"{type(error).__name__}: {error}".encode())
    except ValueError as error:
        return SinkResponse(Verdict.REFUSED, None, str(error).encode(errors="replace"))
    except Exception as error:  # a bug that one event meets must not end the sender
        return SinkResponse(
            Verdict.FAILED, None, f"cannot be sent: {error!r}".encode(errors="replace")
        )
    verdict = judge(response.status)
    detail = b"" if verdict is Verdict.ACCEPTED else response.detail
    return SinkResponse(
        verdict, response.status, detail, retry_after(response.retry_after, time.time())
    )


def judge(status: int) -> Verdict:
    """Whose fault an HTTP status is."""
    if status < 300:
        return Verdict.ACCEPTED
    # A wrong key, as a wrong address, must not turn a topic into dead letters.
    if status in (401, 403, 404, 429, 503):
        return Verdict.DOWN
    # An ingress answers 499 if it loses the function during a request. No function answers it.
    if status in (499, 502, 504):
        return Verdict.UNCLEAR
    if status >= 500 or status in (408, 409):
        return Verdict.FAILED
    return Verdict.REFUSED


def reason_of_response(text: str) -> str:
    """The detail of a problem document (RFC 9457), cut off or not; any other text unchanged."""
    # JSON may hold half a character, which Parquet and HTTP do not.
    return _reason(text).encode(errors="replace").decode()


def _reason(text: str) -> str:
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        return str(json.loads(text)["detail"])
    # Of a response the first 1,024 bytes are kept, which may end within the detail.
    begin = re.search(r'"detail": ?"((?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*)', text)
    if begin and text.startswith("{"):
        with suppress(ValueError):
            return str(json.loads(f'"{begin[1]}"', strict=False)) + "…"
    return text


def retry_after(value: str | None, now: float) -> float:
    """Seconds that a Retry-After header asks for (RFC 9110, 10.2.3): 300 at most, 0 if none."""
    if not value:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except ValueError:
            return 0.0
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER)


def error_extensions(url: str, response: SinkResponse) -> dict[str, str]:
    """The extensions that Knative adds to a dead letter; without a response only the first."""
    extensions = {"knativeerrordest": shown(url)}
    if response.status is not None:
        extensions["knativeerrorcode"] = str(response.status)
        extensions["knativeerrordata"] = base64.b64encode(response.detail).decode()
    return extensions
