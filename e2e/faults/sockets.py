"""Connections that clients open and then forget, at each door of the system."""

import random
import socket
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from e2e.faults.later import Later
from stampede.config.settings import Settings
from stampede.events.auth.access import key_header

HELD_SECONDS = 20.0
AT_ONCE = 40


class Sockets:
    """Holds connections at `read` and at the doors for events.

    Parameters
    ----------
    urls
        URL of each process by name.
    settings
        With the key of events, so that a half-sent event gets past the door.
    """

    def __init__(
        self, chance: random.Random, urls: Mapping[str, str], settings: Settings, later: Later
    ) -> None:
        self._chance, self._later = chance, later
        self._urls = dict(urls)
        self._key = "".join(f"{name}: {value}\r\n" for name, value in key_header(settings).items())

    def hold(self) -> str | None:
        """Connections that send a part of a request, or take nothing of the response."""
        name = self._chance.choice(sorted(self._urls))
        how, request = self._chance.choice(self._requests(name))
        url, held = urlsplit(self._urls[name]), []
        for _ in range(AT_ONCE):
            with suppress(OSError):
                address = (url.hostname or "", url.port or 0)
                connection = socket.create_connection(address, 2)
                connection.sendall(request.encode())
                held.append(connection)
        if not held:
            return None
        self._later.after(HELD_SECONDS, lambda: [connection.close() for connection in held])
        return f"sockets-held at {name}: {len(held)} with {how}"

    def _requests(self, name: str) -> list[tuple[str, str]]:
        get = "GET {} HTTP/1.1\r\nHost: x\r\n\r\n"
        post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n"
        event = (
            f"{post}{self._key}ce-id: held\r\nce-source: held\r\nce-type: held\r\n"
            "ce-specversion: 1.0\r\nContent-Type: application/octet-stream\r\n\r\nhalf a body"
        )
        if name == "read":
            event = f"{post}\r\n" + '{"ids": ['
        response = get.format("/v1/ledger" if name == "read" else "/metrics") * 50
        return [
            ("nothing", ""),
            ("half a header", post),
            ("half a body", event),
            ("answers that nobody takes", response),
        ]
