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
from stampede.events.cloudevents.event import Event
from stampede.events.http.endpoint import EventEndpoint

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
        self.twice: list[tuple[bytes, bytes]] = []

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
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()]
            + self.twice,
        }
        await self.endpoint(scope, receive, send)
        return Answer(sent)


def counted(outcome: str) -> float:
    labels = {"function": "testing", "outcome": outcome}
    return REGISTRY.get_sample_value("stampede_events_total", labels) or 0.0


async def test_a_binary_event() -> None:
    client = Client()
    before = counted("stored")
    response = await client.post(b"an ", b"alert", headers=EVENT | {"ce-kafkaheaderx": "a%20b"})
    assert (response.status, response.body, response.headers) == (204, b"", {"content-length": "0"})
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
    response = await client.post(
        b"x", headers={name: value for name, value in EVENT.items() if name != missing}
    )
    assert response.status == 400
    assert response.problem["type"] == "urn:stampede:problem:not-an-event"
    assert missing.removeprefix("ce-") in response.problem["detail"]
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
    response = await client.post(body, headers=headers)
    assert response.status == 400
    assert response.problem["title"] == "Not an event"
    assert "CloudEvent" in response.problem["detail"]
    assert not client.events


STRUCTURED = {"content-type": "application/cloudevents+json"}
MEMBERS = {name.removeprefix("ce-"): value for name, value in EVENT.items()}
KAFKA = "partition:0#"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"data_base64": "YW4gYWxlcnQ"}, "data_base64"),  # no padding
        ({"data_base64": "YW4g*YWxlcnQ="}, "data_base64"),
        ({"data_base64": "\ud800"}, "data_base64"),
        ({"data_base64": 7}, "data_base64"),
        ({"data_base64": "eA==", "data": "x"}, "data_base64"),
        ({"data": "\ud800"}, "data"),
        ({"id": "\ud800"}, "id"),
        ({"id": "a\0b"}, "id"),
        ({"id": "a\nb"}, "id"),
        ({"id": "x" * 1025}, "id"),
        ({"id": 7.5}, "id"),
        ({"id": ["a"]}, "id"),
        ({"source": "s\x85#alerts"}, "source"),
        ({"source": "s" * 1025}, "source"),
        ({"type": "\udfff"}, "type"),
        ({"subject": f"{KAFKA}-1"}, "subject"),
        ({"subject": f"{KAFKA}{2**63}"}, "subject"),
        ({"subject": f"{KAFKA}{2**63 - 1}"}, "subject"),
        ({"subject": KAFKA + "9" * 900}, "subject"),
        ({"subject": "partition:0"}, "subject"),
        ({"subject": "partition:-1#5"}, "subject"),
        ({"subject": "partition:0#5 "}, "subject"),
        ({"subject": f"partition:{2**32}#5"}, "subject"),
        ({"subject": "packs/../../secret"}, "subject"),
        ({"subject": ".."}, "subject"),
        ({"subject": "packs/./a"}, "subject"),
        ({"time": "yesterday"}, "time"),
        ({"time": "2026-11-22T00:00:00"}, "time"),
        ({"time": 5}, "time"),
        ({"time": "2026-11-22T00:00:00Z\0"}, "time"),
        ({"extension": "\ud800"}, "extension"),
        ({"kafkaheaderx": "\udc00"}, "kafkaheaderx"),
        ({"extension": {"a": 1}}, "extension"),
        ({"extension": 0.5}, "extension"),
        ({"ext\0ension": "x"}, "ext"),
        ({"Extension": "x"}, "Extension"),
        ({"x" * 257: "x"}, "x"),
        ({"extension": "x" * (1 << 20)}, "extension"),
        ({f"x{n}": "x" for n in range(300)}, "attributes"),
        ({"data": [[]] * 100_001}, "JSON values"),
    ],
)
async def test_a_wrong_attribute_is_named(change: dict, named: str) -> None:
    client = Client()
    client.endpoint = EventEndpoint("testing", client.handle, 4 << 20)
    body = json.dumps(MEMBERS | change).encode()
    response = await client.post(body, headers=STRUCTURED)
    assert response.status == 400, response.body
    assert response.problem["type"] == "urn:stampede:problem:not-an-event"
    assert named in response.problem["detail"]
    assert not client.events


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({"ce-id": "a%00b"}, "id"),
        ({"ce-id": "a%0Ab"}, "id"),
        ({"ce-source": "s%7F"}, "source"),
        ({"ce-subject": "partition:0%23-1"}, "subject"),
        ({"ce-subject": "a/%2E%2E/b"}, "subject"),
        ({"ce-time": "2026-13-01T00:00:00Z"}, "time"),
        ({"ce-x_y": "x"}, "x_y"),
        ({"ce-": "x"}, "name"),
        ({"ce-extension": "%0D%0A"}, "extension"),
    ],
)
async def test_a_wrong_header_is_named(headers: dict, named: str) -> None:
    client = Client()
    response = await client.post(b"x", headers=EVENT | headers)
    assert response.status == 400
    assert named in response.problem["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": ' * 100_000,
        json.dumps(MEMBERS)[:-1].encode() + b', "id": "another"}',
        json.dumps(MEMBERS)[:-1].encode() + b', "x": ' + b"9" * 5000 + b"}",
        json.dumps(MEMBERS).encode("utf-16"),
    ],
    ids=["deep", "an id twice", "a long number", "utf-16"],
)
async def test_json_that_is_no_event(body: bytes) -> None:
    client = Client()
    client.endpoint = EventEndpoint("testing", client.handle, 4 << 20)
    response = await client.post(body, headers=STRUCTURED)
    assert response.status == 400
    assert not client.events


async def test_an_attribute_with_two_headers_is_refused() -> None:
    client = Client()
    client.twice = [(b"ce-subject", b"partition:3#7")]
    response = await client.post(b"x")
    assert response.status == 400
    assert "subject: its header is there 2 times" in response.problem["detail"]


@pytest.mark.parametrize(
    ("value", "text"), [(7, "7"), (-7, "-7"), (True, "true"), ("é", "é"), (None, None)]
)
async def test_attributes_are_text(value: object, text: str | None) -> None:
    client = Client()
    body = json.dumps(MEMBERS | {"extension": value}).encode()
    assert (await client.post(body, headers=STRUCTURED)).status == 204
    assert client.events[0].attributes.get("extension") == text


async def test_a_kafka_header_may_be_any_bytes() -> None:
    """A KafkaSource makes attributes of them; the alert is good all the same."""
    client = Client()
    odd = {"ce-kafkaheadertrace": "%00%01%EF%BF%BD", "ce-key": "%0A", "ce-partitionkey": "%0A"}
    assert (await client.post(b"x", headers=EVENT | odd)).status == 204
    assert client.events[0].attributes["kafkaheadertrace"] == "\0\x01\ufffd"


@pytest.mark.parametrize(
    "time", ["+58114-06-20T13:20:00Z", "-292275055-05-16T16:47:04.192Z", "60000-01-01T00:00:00Z"]
)
async def test_a_time_in_the_wrong_unit_is_left_out(time: str) -> None:
    """A KafkaSource sends it if a record's CreateTime is in microseconds."""
    client = Client()
    assert (await client.post(b"x", headers=EVENT | {"ce-time": time})).status == 204
    body = json.dumps(MEMBERS | {"time": time}).encode()
    assert (await client.post(body, headers=STRUCTURED)).status == 204
    assert ["time" in event.attributes for event in client.events] == [False, False]


@pytest.mark.parametrize(
    "kind", ["cloudevents-batch+json", "cloudevents-batch+json; charset=utf-8", "cloudevents+avro"]
)
async def test_other_modes_are_refused_in_clear_words(kind: str) -> None:
    client = Client()
    headers = {"content-type": f"application/{kind}"}
    response = await client.post(json.dumps([MEMBERS]).encode(), headers=headers)
    assert response.status == 415
    assert response.problem["type"] == "urn:stampede:problem:unknown-mode"
    assert "one CloudEvent a request" in response.problem["detail"]
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
    response = await client.post(b"x")
    assert response.status == CONTRACT[error]
    assert response.problem == {
        "type": f"urn:stampede:problem:{error.name}",
        "title": error.name.replace("-", " ").capitalize(),
        "status": CONTRACT[error],
        "detail": "event partition:3/offset:42 of "
        "/apis/v1/namespaces/default/kafkasources/test#alerts: what is wrong",
    }
    assert len(response.body) < 1024  # Knative cuts off longer answers
    assert counted(error.name) == before + 1


async def test_a_long_reason_still_fits_into_a_dead_letter() -> None:
    response = await Client(Undecodable("wrong " * 1000)).post(b"x")
    assert len(response.body) < 1024
    assert response.problem["status"] == 400


async def test_the_limit_is_what_may_just_pass() -> None:
    client = Client()
    assert (await client.post(bytes(LIMIT // 2), bytes(LIMIT - LIMIT // 2))).status == 204
    response = await client.post(bytes(LIMIT), b"x")
    assert response.status == 413
    assert "partition:3/offset:42" in response.problem["detail"]
    assert "1,001 bytes or more, the limit is 1,000" in response.problem["detail"]
    assert len(client.events) == 1


async def test_a_body_that_says_it_is_large_is_not_read() -> None:
    client = Client()
    response = await client.post(b"x", headers=EVENT | {"content-length": str(LIMIT + 1)})
    assert (response.status, client.parts_read) == (413, 0)


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
    response = await Client().post(method="GET", path=path, headers={})
    assert response.status == status
    assert expected in response.body
