"""The key of the senders of events: who has it is served, who lacks it is a stranger."""

import json
from typing import Any

import pytest
import structlog
from prometheus_client import REGISTRY
from starlette.types import Message

from stampede.config.settings import Settings
from stampede.deadletters.dead_letter import read_rows
from stampede.errors import SetupError
from stampede.events.auth.access import access_keys, key_attribute, key_header, url_with_key
from stampede.events.cloudevents.event import Event
from stampede.events.http.endpoint import EventEndpoint, HttpBinding
from stampede.events.kafka.source import overrides
from stampede.handlers.deadletters import DeadLetters
from stampede.store.objects.memory import MemoryObjects
from tests.support.http import STRUCTURED, Answer, post

pytestmark = pytest.mark.anyio

KEY, SECOND = "the-first-key-0123456789", "the-second-key-987654321"
SETTINGS = Settings(event_key=KEY, second_event_key=SECOND)
EVENT = {
    "ce-specversion": "1.0",
    "ce-type": "dev.knative.kafka.event",
    "ce-source": "s#alerts",
    "ce-subject": "partition:3#42",
    "ce-id": "partition:3/offset:42",
}
BEARER = {"authorization": f"Bearer {KEY}"}


class Function:
    def __init__(self, settings: Settings = SETTINGS, **options: Any) -> None:
        self.events: list[Event] = []
        self.endpoint = EventEndpoint.of("guarded", self.handle, settings, **options)

    async def handle(self, event: Event) -> None:
        self.events.append(event)

    async def post(self, headers: dict[str, str], path: str = "/") -> Answer:
        return await post(self.endpoint, b"x", EVENT | headers, path)


def counted() -> float:
    labels = {"function": "guarded", "outcome": "not-authorized"}
    return REGISTRY.get_sample_value("stampede_events_total", labels) or 0.0


@pytest.mark.parametrize(
    "headers",
    [
        BEARER,
        {"authorization": f"bearer {KEY}"},
        {"ce-accesskey": KEY},
        {"authorization": "Bearer of-a-token-of-the-broker", "ce-accesskey": KEY},
        {"authorization": f"Bearer {SECOND}"},
        {"ce-accesskey": SECOND},
    ],
)
async def test_a_sender_with_a_key_is_served(headers: dict[str, str]) -> None:
    function = Function()
    assert (await function.post(headers)).status == 204
    (event,) = function.events
    assert "accesskey" not in event.attributes
    assert KEY not in repr(event)
    assert SECOND not in repr(event)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer "},
        {"authorization": KEY},
        {"authorization": f"Basic {KEY}"},
        {"authorization": f"Bearer {KEY}x"},
        {"authorization": f"Bearer {KEY[:-1]}"},
        {"authorization": "Bearer \xe9"},
        {"ce-accesskey": ""},
        {"ce-accesskey": KEY.upper()},
        {"ce-accesskey": "%ED%A0%80"},
    ],
)
async def test_a_stranger_is_told_401(headers: dict[str, str]) -> None:
    function = Function()
    before = counted()
    for path in ("/", f"/{KEY}"):
        response = await function.post(headers, path)
        assert response.status == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.problem["type"] == "urn:stampede:problem:not-authorized"
        assert KEY not in response.body.decode()
    assert not function.events
    assert counted() == before + 2


async def test_the_body_of_a_stranger_is_not_read() -> None:
    sent = []

    async def receive() -> dict:
        raise AssertionError("a stranger's body is read")

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(name.encode(), value.encode()) for name, value in EVENT.items()]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    await Function().endpoint(scope, receive, send)
    assert sent[0]["status"] == 401


async def test_an_s3_endpoint_has_its_key_in_the_path() -> None:
    function = Function(binding=HttpBinding(key_in_path=True))
    assert (await function.post({}, f"/{KEY}")).status == 204
    assert (await function.post({}, f"/{SECOND}/")).status == 204
    assert (await function.post({}, "/")).status == 401
    assert (await function.post({}, "/another")).status == 401
    assert url_with_key("http://relay:1/", SETTINGS) == f"http://relay:1/{KEY}"
    assert url_with_key("http://relay:1/", Settings()) == "http://relay:1/"
    url = url_with_key("https://site/stampede/", SETTINGS)
    assert url == f"https://site/stampede/{KEY}"
    assert (await function.post({}, f"/stampede/{KEY}")).status == 204


async def test_without_a_key_everyone_is_served_and_a_key_is_taken_off() -> None:
    function = Function(Settings())
    assert (await function.post({})).status == 204
    assert (await function.post({"ce-accesskey": KEY})).status == 204
    assert KEY not in repr(function.events)
    assert key_header(Settings()) == key_attribute(Settings()) == {}


async def test_a_key_in_a_structured_event_is_taken_off() -> None:
    function = Function()
    members = {name.removeprefix("ce-"): value for name, value in EVENT.items()}
    body = json.dumps(members | {"accesskey": KEY}).encode()
    assert (await post(function.endpoint, body, STRUCTURED | BEARER)).status == 204
    assert KEY not in repr(function.events)


@pytest.mark.parametrize("way", [BEARER, {"ce-accesskey": KEY}])
@pytest.mark.parametrize("path", ["/cutouts", "/wrong"])
async def test_the_key_is_in_no_stored_object_and_no_log_line(way: dict, path: str) -> None:
    objects = MemoryObjects()
    letters = DeadLetters(objects)

    async def handle(event: Event):
        return (await letters.store_batch([event]))[0]

    endpoint = EventEndpoint.of("deadletters", handle, SETTINGS)
    with structlog.testing.capture_logs() as lines:
        await post(endpoint, b"x", EVENT | way, path)
        await post(endpoint, b"x", EVENT | way | {"ce-id": ""}, path)
        await post(endpoint, b"x", EVENT | way | {"ce-subject": "partition:0"}, path)
    assert KEY not in repr(lines)
    stored = list(objects.list(""))
    assert bool(stored) == (path == "/cutouts")
    for info in stored:
        assert KEY.encode() not in objects.get(info.key)
        assert KEY not in repr(read_rows(objects, info).to_pylist())


@pytest.mark.parametrize("key", ["short", "with a space in its middle", "line\nbreak-0123456789"])
def test_a_key_that_cannot_be_sent_is_refused(key: str) -> None:
    with pytest.raises(SetupError) as raised:
        access_keys(Settings(event_key=key))
    assert key not in raised.value.message


def test_wrong_overrides_are_not_shown() -> None:
    with pytest.raises(SetupError) as raised:
        overrides(f'{{"extensions": "accesskey={KEY}"}}')
    assert KEY not in raised.value.message


def test_settings_do_not_show_the_key() -> None:
    assert KEY not in repr(SETTINGS)
    assert SECOND not in repr(SETTINGS)
