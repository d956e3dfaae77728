"""Requests to an ASGI app in the same process, as uvicorn makes them."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

STRUCTURED = {"content-type": "application/cloudevents+json"}


class Answer:
    """What an app answered."""

    def __init__(self, sent: Sequence[dict[str, Any]]) -> None:
        start, *rest = sent
        self.status: int = start["status"]
        self.headers = {name.decode(): value.decode() for name, value in start["headers"]}
        self.body = b"".join(part.get("body", b"") for part in rest)

    @property
    def problem(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/problem+json"
        found: dict[str, Any] = json.loads(self.body)
        return found


async def post(
    app: Any, body: bytes, headers: Mapping[str, str] = STRUCTURED, path: str = "/"
) -> Answer:
    """POST a body, by default an event in structured mode."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "root_path": "",
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in headers.items()],
    }
    await app(scope, receive, send)
    return Answer(sent)


async def posted_together(
    app: Any, events: Sequence[Mapping[str, Any]], path: str = "/"
) -> list[int]:
    """The statuses of the responses to these events, in structured mode and all at once."""
    bodies = [json.dumps(event).encode() for event in events]
    return [
        response.status
        for response in await asyncio.gather(*(post(app, body, path=path) for body in bodies))
    ]
