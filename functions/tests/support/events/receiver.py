"""A sink for tests: a real HTTP server with responses chosen by the test."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import uvicorn

from stampede_local.ports import free_port

PARTITIONS = 4  # of the topics in tests
Place = tuple[int, int]
"""Partition and offset."""


class Received(NamedTuple):
    """One request."""

    headers: dict[str, str]
    body: bytes
    path: str = "/"

    @property
    def id(self) -> str:
        return self.headers.get("ce-id", "")  # a plain notification of a store has none

    @property
    def place(self) -> Place:
        """Partition and offset."""
        return int(self.headers["ce-knativekafkapartition"]), int(
            self.headers["ce-knativekafkaoffset"]
        )


Reply = tuple[int, bytes, dict[str, str]]


def accept(event: Received, times: int) -> Reply:
    """Answer 204 to everything."""
    return 204, b"", {}


class Receiver:
    """Listens on `port` while entered; may be entered again.

    `answer` gets an event and how many times it has come so far, this time included.
    """

    def __init__(self, response: Callable[[Received, int], Reply] = accept) -> None:
        self.port = free_port()
        self.answer = response
        self.requests: list[Received] = []
        self.accepted: list[Received] = []
        self.delay = 0.0  # seconds before every response
        self.most_at_once = 0
        self._under_way = 0
        self._times: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def __enter__(self) -> "Receiver":
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._app,
                host="127.0.0.1",
                port=self.port,
                log_config=None,
                access_log=False,
                lifespan="off",
                interface="asgi3",
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            time.sleep(0.002)
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.should_exit = True
        self._thread.join()

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        event = Received(headers, body, scope["path"])
        self.requests.append(event)
        self._times[event.id] += 1
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        await asyncio.sleep(self.delay)
        self._under_way -= 1
        status, reply, more_headers = self.answer(event, self._times[event.id])
        reply = b"" if status == 204 else reply
        if status < 300:
            self.accepted.append(event)
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(k.encode(), v.encode()) for k, v in more_headers.items()]
                + [(b"content-length", str(len(reply)).encode())],
            }
        )
        await send({"type": "http.response.body", "body": reply})


def arrived(receiver: Receiver) -> dict[Place, bytes]:
    """The bodies of accepted events, by partition and offset."""
    return {event.place: event.body for event in receiver.accepted}
