"""What an answer may lack or how old it may be: told in headers, and never cached.

================================  ==========================================================
header                            meaning
================================  ==========================================================
``Stampede-Incomplete: REASON``   data that the answer may need cannot be read or verified
``Stampede-View-Age: SECONDS``    the store cannot be listed; the answer is from an older view
================================  ==========================================================

A JSON answer has the reasons too, as the list ``incomplete``; a page shows them.

The lookups of a request run in threads that share its notes (`ThreadRunner`).
"""

import json
from contextvars import ContextVar
from math import ceil

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

INCOMPLETE, VIEW_AGE = "Stampede-Incomplete", "Stampede-View-Age"


class Notes:
    """What the lookups of one request found."""

    def __init__(self) -> None:
        self.reasons: dict[str, None] = {}
        self.view_age = 0.0


_notes: ContextVar[Notes | None] = ContextVar("notes", default=None)


def may_lack(reason: str) -> None:
    """Note that the answer may lack something; `reason` is ASCII."""
    if notes := _notes.get():
        notes.reasons[reason] = None


def from_view_of_age(seconds: float) -> None:
    """Note that the answer comes from a listing of this age; the oldest counts."""
    if notes := _notes.get():
        notes.view_age = max(notes.view_age, seconds)


def incomplete() -> list[str]:
    """Why the answer may lack something; empty if it lacks nothing."""
    notes = _notes.get()
    return [*notes.reasons] if notes else []


def in_object(document: bytes) -> bytes:
    """A JSON object with the member ``incomplete`` if there is anything to tell."""
    if why := incomplete():
        return document[:-1] + b', "incomplete": %s}' % json.dumps(why).encode()
    return document


class NotesMiddleware:
    """ASGI middleware that collects the notes of each request and sends them as headers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and add the headers to its response."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        notes = Notes()
        _notes.set(notes)

        async def send_with_notes(message: Message) -> None:
            if message["type"] == "http.response.start" and (notes.reasons or notes.view_age):
                headers = MutableHeaders(scope=message)
                headers["Cache-Control"] = "no-store"
                if notes.reasons:
                    headers[INCOMPLETE] = ", ".join(notes.reasons)
                if notes.view_age:
                    headers[VIEW_AGE] = str(ceil(notes.view_age))
            await send(message)

        await self.app(scope, receive, send_with_notes)
