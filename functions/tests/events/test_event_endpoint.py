"""The event endpoint, called as uvicorn calls it: ASGI messages in, ASGI messages out."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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

pytestmark = pytest.mark.anyio

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


class Client:
    """Sends to an endpoint whose outcome the test decides.

    Attributes
    ----------
    events
        The events that the endpoint's function was given.
    parts_read
        How many parts of the last body the endpoint has read.
    """

    def __init__(self, outcome: StampedeError | None = None) -> None:
        self.outcome = outcome
        self.events: list[Event] = []
        self.endpoint = EventEndpoint("testing", self.handle, LIMIT)
        self.parts_read = 0

    async def handle(self, event: Event) -> StampedeError | None:
        self.events.append(event)
        return self.outcome

    async def post(
        self,
        *parts: bytes,
        headers: dict[str, str] = EVENT,
        path: str = "/",
        gone: bool = False,
        method: str = "POST",
    ) -> Answer:
        """Send a body in these parts; if `gone`, disconnect before its end."""
        self.parts_read = 0
        unread = iter(parts or (b"",))

        async def receive() -> dict[str, Any]:
            self.parts_read += 1
            part = next(unread, None)
            if part is None:
                return {"type": "http.disconnect"}
            more = self.parts_read < len(parts) or gone
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
        await self.endpoint(scope, receive, send)
        return Answer(sent)


def counted(outcome: str) -> float:
    labels = {"function": "testing", "outcome": outcome}
    return REGISTRY.get_sample_value("stampede_events_total", labels) or 0.0


async def test_a_binary_event() -> None:
    client = Client()
    before = counted("stored")
    answer = await client.post(b"an ", b"alert", headers=EVENT | {"ce-kafkaheaderx": "a%20b"})
    assert (answer.status, answer.body, answer.headers) == (204, b"", {"content-length": "0"})
    (event,) = client.events
    assert event.data == b"an alert"
    assert event.attributes["id"] == "partition:3/offset:42"
    assert event.attributes["kafkaheaderx"] == "a b"
    assert event.position == ("alerts", 3, 42)
    assert counted("stored") == before + 1


async def test_an_empty_body_is_an_event_too() -> None:
    client = Client()
    assert (await client.post()).status == 204
    assert client.events[0].data == b""


async def test_an_event_carries_its_path() -> None:
    client = Client()
    await client.post(b"x", path="/cutouts")
    assert client.events[0].path == "/cutouts"


@pytest.mark.parametrize(
    "data",
    [{"data_base64": "YW4gYWxlcnQ="}, {"data": {"an": "object"}}, {}],
    ids=["bytes", "json", "none"],
)
async def test_a_structured_event(data: dict) -> None:
    client = Client()
    members = {name.removeprefix("ce-"): value for name, value in EVENT.items()} | data
    headers = {"content-type": "application/cloudevents+json; charset=utf-8"}
    assert (await client.post(json.dumps(members).encode(), headers=headers)).status == 204
    (event,) = client.events
    assert event.position == ("alerts", 3, 42)
    if "data_base64" in data:
        assert event.data == b"an alert"
    elif "data" in data:
        assert json.loads(event.data) == data["data"]
    else:
        assert event.data == b""


@pytest.mark.parametrize("missing", ["ce-id", "ce-source", "ce-type", "ce-specversion"])
async def test_an_attribute_is_missing(missing: str) -> None:
    client = Client()
    before = counted("not-an-event")
    answer = await client.post(
        b"x", headers={name: value for name, value in EVENT.items() if name != missing}
    )
    assert answer.status == 400
    assert answer.problem["type"] == "urn:stampede:problem:not-an-event"
    assert missing.removeprefix("ce-") in answer.problem["detail"]
    assert not client.events
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
async def test_a_request_without_a_valid_event_is_a_400(headers: dict, body: bytes) -> None:
    client = Client()
    answer = await client.post(body, headers=headers)
    assert answer.status == 400
    assert answer.problem["title"] == "Not an event"
    assert "CloudEvent" in answer.problem["detail"]
    assert not client.events


CONTRACT = {
    # Knative retries 404, 408, 409, 429 and everything from 500 up; all others are final.
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
async def test_the_status_is_the_retry_contract(error: type[StampedeError], raised: bool) -> None:
    client = Client(error("what is wrong"))
    if raised:

        async def handle(event: Event) -> None:
            raise error("what is wrong")

        client.endpoint = EventEndpoint("testing", handle, LIMIT)
    before = counted(error.name)
    answer = await client.post(b"x")
    assert answer.status == CONTRACT[error]
    assert answer.problem == {
        "type": f"urn:stampede:problem:{error.name}",
        "title": error.name.replace("-", " ").capitalize(),
        "status": CONTRACT[error],
        "detail": "event partition:3/offset:42 of "
        "/apis/v1/namespaces/default/kafkasources/test#alerts: what is wrong",
    }
    assert len(answer.body) < 1024  # Knative cuts off longer answers
    assert counted(error.name) == before + 1


async def test_a_long_reason_still_fits_into_a_dead_letter() -> None:
    answer = await Client(Undecodable("wrong " * 1000)).post(b"x")
    assert len(answer.body) < 1024
    assert answer.problem["status"] == 400


async def test_the_limit_is_what_may_just_pass() -> None:
    client = Client()
    assert (await client.post(bytes(LIMIT // 2), bytes(LIMIT - LIMIT // 2))).status == 204
    answer = await client.post(bytes(LIMIT), b"x")
    assert answer.status == 413
    assert "partition:3/offset:42" in answer.problem["detail"]
    assert "1,001 bytes or more, the limit is 1,000" in answer.problem["detail"]
    assert len(client.events) == 1


async def test_a_body_that_says_it_is_large_is_not_read() -> None:
    client = Client()
    answer = await client.post(b"x", headers=EVENT | {"content-length": str(LIMIT + 1)})
    assert (answer.status, client.parts_read) == (413, 0)


async def test_an_endless_body_is_not_read_to_its_end() -> None:
    client = Client()
    assert (await client.post(*[bytes(LIMIT)] * 1000)).status == 413
    assert client.parts_read == 2


async def test_a_body_cut_off_by_a_disconnect_is_no_event() -> None:
    client = Client()
    assert (await client.post(b"half of", gone=True)).status == 400
    assert not client.events


async def test_resources_are_open_while_the_server_runs() -> None:
    log = []

    @asynccontextmanager
    async def resource(name: str) -> AsyncIterator[None]:
        log.append(f"open {name}")
        yield
        log.append(f"close {name}")

    async def handle(event: Event) -> None:
        return None

    resources = [resource("workers"), resource("batcher")]
    endpoint = EventEndpoint("testing", handle, LIMIT, resources)
    messages = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, Any]:
        return {"type": next(messages)}

    async def send(message: Any) -> None:
        log.append(message["type"])

    await endpoint({"type": "lifespan", "state": {}}, receive, send)
    assert log == [
        *("open workers", "open batcher", "lifespan.startup.complete"),
        *("close batcher", "close workers", "lifespan.shutdown.complete"),
    ]


@pytest.mark.parametrize(
    ("path", "status", "expected"),
    [
        ("/", 200, b"stampede testing"),
        ("/metrics", 200, b"stampede_events_total"),
        ("/health/liveness", 200, b"ok"),
        ("/health/readiness", 200, b"ok"),
        ("/nowhere", 404, b""),
    ],
)
async def test_the_other_routes(path: str, status: int, expected: bytes) -> None:
    answer = await Client().post(method="GET", path=path, headers={})
    assert answer.status == status
    assert expected in answer.body
