"""The door, asked as uvicorn asks it: ASGI messages in, ASGI messages out."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import REGISTRY

from stampede.errors import (
    NotAnEvent,
    Overloaded,
    SchemaRegistryDown,
    StampedeError,
    StoreDown,
    TooLarge,
    Undecodable,
    Unusable,
)
from stampede.events.event import Event
from stampede.events.event_endpoint import EventEndpoint

LIMIT = 1000
EVENT = {
    "ce-specversion": "1.0",
    "ce-type": "dev.knative.kafka.event",
    "ce-source": "/apis/v1/namespaces/default/kafkasources/test#alerts",
    "ce-subject": "partition:3#42",
    "ce-id": "partition:3/offset:42",
}


class Answer:
    def __init__(self, sent: list[dict]) -> None:
        start, *rest = sent
        self.status = start["status"]
        self.headers = {name.decode(): value.decode() for name, value in start["headers"]}
        self.body = b"".join(part.get("body", b"") for part in rest)

    @property
    def problem(self) -> dict:
        assert self.headers["content-type"] == "application/problem+json"
        return json.loads(self.body)


class Asked:
    """A door whose verdict the test decides; what came through it."""

    def __init__(self, verdict: StampedeError | None = None) -> None:
        self.verdict = verdict
        self.events: list[Event] = []
        self.door = EventEndpoint("testing", self.handle, LIMIT)
        self.read = 0

    async def handle(self, event: Event) -> StampedeError | None:
        self.events.append(event)
        return self.verdict

    def post(
        self,
        *parts: bytes,
        headers: dict[str, str] = EVENT,
        path: str = "/",
        gone: bool = False,
        method: str = "POST",
    ) -> Answer:
        """Send a body in these parts; where `gone` is set the sender leaves before its end."""
        return asyncio.run(self.ask(iter(parts or (b"",)), headers, path, gone, len(parts), method))

    async def ask(
        self,
        parts: Iterator[bytes],
        headers: dict[str, str],
        path: str,
        gone: bool,
        count: int,
        method: str,
    ) -> Answer:
        self.read = 0

        async def receive() -> dict[str, Any]:
            self.read += 1
            part = next(parts, None)
            if part is None:
                return {"type": "http.disconnect"}
            more = self.read < count or gone
            return {"type": "http.request", "body": part, "more_body": more}

        sent: list[dict] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        await self.door(scope, receive, send)
        return Answer(sent)


def counted(outcome: str) -> float:
    labels = {"function": "testing", "outcome": outcome}
    return REGISTRY.get_sample_value("stampede_events_total", labels) or 0.0


def test_a_binary_event() -> None:
    asked = Asked()
    before = counted("stored")
    answer = asked.post(b"an ", b"alert", headers=EVENT | {"ce-kafkaheaderx": "a%20b"})
    assert (answer.status, answer.body, answer.headers) == (204, b"", {"content-length": "0"})
    (event,) = asked.events
    assert event.data == b"an alert"
    assert event.attributes["id"] == "partition:3/offset:42"
    assert event.attributes["kafkaheaderx"] == "a b"
    assert event.position == ("alerts", 3, 42)
    assert counted("stored") == before + 1


def test_an_empty_body_is_an_event_too() -> None:
    asked = Asked()
    assert asked.post().status == 204
    assert asked.events[0].data == b""


def test_the_path_comes_along() -> None:
    asked = Asked()
    asked.post(b"x", path="/cutouts")
    assert asked.events[0].path == "/cutouts"


@pytest.mark.parametrize(
    "data",
    [{"data_base64": "YW4gYWxlcnQ="}, {"data": {"an": "object"}}, {}],
    ids=["bytes", "json", "none"],
)
def test_a_structured_event(data: dict) -> None:
    asked = Asked()
    members = {name.removeprefix("ce-"): value for name, value in EVENT.items()} | data
    headers = {"content-type": "application/cloudevents+json; charset=utf-8"}
    assert asked.post(json.dumps(members).encode(), headers=headers).status == 204
    (event,) = asked.events
    assert event.position == ("alerts", 3, 42)
    if "data_base64" in data:
        assert event.data == b"an alert"
    elif "data" in data:
        assert json.loads(event.data) == data["data"]
    else:
        assert event.data == b""


@pytest.mark.parametrize("missing", ["ce-id", "ce-source", "ce-type", "ce-specversion"])
def test_an_attribute_is_missing(missing: str) -> None:
    asked = Asked()
    before = counted("not-an-event")
    answer = asked.post(
        b"x", headers={name: value for name, value in EVENT.items() if name != missing}
    )
    assert answer.status == 400
    assert answer.problem["type"] == "urn:stampede:problem:not-an-event"
    assert missing.removeprefix("ce-") in answer.problem["detail"]
    assert not asked.events
    assert counted("not-an-event") == before + 1


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, b"an alert"),
        ({"content-type": "application/json"}, b"{}"),
        ({"content-type": "application/cloudevents+json"}, b"{not json"),
        ({"content-type": "application/cloudevents+json"}, b"[]"),
        ({"content-type": "application/cloudevents+json"}, b'"text"'),
        ({"content-type": "application/cloudevents+json"}, b"\xff\xfe"),
        ({"content-type": "application/cloudevents+json"}, b'{"specversion": "1.0"}'),
        (EVENT | {"ce-specversion": "9.9"}, b""),
        (EVENT | {"ce-time": "yesterday"}, b""),
        (EVENT | {"ce-id": ""}, b""),
    ],
)
def test_what_is_no_event(headers: dict, body: bytes) -> None:
    asked = Asked()
    answer = asked.post(body, headers=headers)
    assert answer.status == 400
    assert answer.problem["title"] == "Not an event"
    assert "CloudEvent" in answer.problem["detail"]
    assert not asked.events


CONTRACT = {
    # Knative tries 404, 408, 409, 429 and everything from 500 up again; the rest is for good.
    NotAnEvent: 400,
    Undecodable: 400,
    Unusable: 422,
    TooLarge: 413,
    StoreDown: 503,
    SchemaRegistryDown: 503,
    Overloaded: 429,
    StampedeError: 500,
}


@pytest.mark.parametrize("error", CONTRACT)
@pytest.mark.parametrize("raised", [False, True])
def test_the_status_is_the_retry_contract(error: type[StampedeError], raised: bool) -> None:
    asked = Asked(error("what is wrong"))
    if raised:

        async def handle(event: Event) -> None:
            raise error("what is wrong")

        asked.door = EventEndpoint("testing", handle, LIMIT)
    before = counted(error.name)
    answer = asked.post(b"x")
    assert answer.status == CONTRACT[error]
    assert answer.problem == {
        "type": f"urn:stampede:problem:{error.name}",
        "title": error.name.replace("-", " ").capitalize(),
        "status": CONTRACT[error],
        "detail": "event partition:3/offset:42 of "
        "/apis/v1/namespaces/default/kafkasources/test#alerts: what is wrong",
    }
    assert len(answer.body) < 1024  # what Knative keeps of it
    assert counted(error.name) == before + 1


def test_a_long_reason_still_fits_into_a_dead_letter() -> None:
    answer = Asked(Undecodable("wrong " * 1000)).post(b"x")
    assert len(answer.body) < 1024
    assert answer.problem["status"] == 400


def test_the_limit_is_what_may_just_pass() -> None:
    asked = Asked()
    assert asked.post(bytes(LIMIT // 2), bytes(LIMIT - LIMIT // 2)).status == 204
    answer = asked.post(bytes(LIMIT), b"x")
    assert answer.status == 413
    assert "partition:3/offset:42" in answer.problem["detail"]
    assert "1,001 bytes, the limit is 1,000" in answer.problem["detail"]
    assert len(asked.events) == 1


def test_a_large_body_is_read_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is still sending when it is answered may never see the answer."""
    asked = Asked()
    kept = []
    monkeypatch.setattr("stampede.events.event_endpoint.parse", lambda *a: kept.append(a))
    assert asked.post(*[bytes(LIMIT)] * 3).status == 413
    assert asked.read == 3
    assert not kept


def test_an_endless_body_is_not_read_to_its_end() -> None:
    asked = Asked()
    assert asked.post(*[bytes(LIMIT)] * 1000).status == 413
    assert asked.read < 10


def test_a_sender_that_goes_away_is_nobody_s_alert() -> None:
    asked = Asked()
    assert asked.post(b"half of", gone=True).status == 400
    assert not asked.events


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/", 200, b"stampede testing"),
        ("/metrics", 200, b"stampede_events_total"),
        ("/health/liveness", 200, b"ok"),
        ("/health/readiness", 200, b"ok"),
        ("/nowhere", 404, b""),
    ],
)
def test_pages_beside_the_door(path: str, status: int, says: bytes) -> None:
    answer = Asked().post(method="GET", path=path, headers={})
    assert answer.status == status
    assert says in answer.body
