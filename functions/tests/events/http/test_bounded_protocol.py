"""What one client may hold of a server: real connections to uvicorn with `LargeBodies`."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
import uvicorn
from prometheus_client import REGISTRY
from starlette.types import Receive, Scope, Send

from stampede.events.auth.access import Senders
from stampede.events.cloudevents.event import Event
from stampede.events.http import bounded_protocol
from stampede.events.http.body_parts import EXTENSION_BYTES, FRAMING_BYTES
from stampede.events.http.bounded_protocol import HEADER_BYTES, LINGER_BYTES
from stampede.events.http.endpoint import EventEndpoint
from stampede.events.http.header_size import MOST_HEADERS
from stampede.events.http.large_bodies import LargeBodies, body_protocol

pytestmark = pytest.mark.anyio

SECONDS = 0.4
LIMIT = 100_000
HELD = 250_000
EVENT = (
    b"POST / HTTP/1.1\r\nhost: x\r\nce-specversion: 1.0\r\nce-type: t\r\nce-source: s#alerts\r\n"
    b"ce-subject: partition:3#42\r\nce-id: partition:3/offset:42\r\n"
)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """On uvloop, as `stampede serve` does."""
    return "asyncio", {"use_uvloop": True}


Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class Function:
    """A function that keeps its events, and what it holds."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.endpoint = EventEndpoint("held", self.handle, LIMIT, held_bytes=HELD)

    async def handle(self, event: Event) -> None:
        await self.go_on.wait()
        self.events.append(event)

    @property
    def held(self) -> float | None:
        return REGISTRY.get_sample_value("stampede_held_bytes", {"function": "held"})


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[Connect]:
    protocol = body_protocol(SECONDS)
    config = uvicorn.Config(
        app, port=0, http=protocol, ws="none", log_config=None, timeout_keep_alive=1, lifespan="off"
    )
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield lambda: asyncio.open_connection("127.0.0.1", port)
    finally:
        server.should_exit = True
        await running


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the next answer."""
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).decode()
    line, *lines = head.strip().split("\r\n")
    headers = dict(each.lower().split(": ", 1) for each in lines)
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(line.split()[1]), headers, body


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the server closes the connection within some seconds."""
    try:
        return await asyncio.wait_for(reader.read(), 20) is not None
    except ConnectionError:
        return True


def dropped(part: str) -> float:
    return REGISTRY.get_sample_value("stampede_clients_dropped_total", {"part": part}) or 0.0


async def test_an_unfinished_header_is_answered_and_dropped() -> None:
    async with serving(Function().endpoint) as connect:
        reader, writer = await connect()
        before = dropped("header")
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\n")
        status, headers, body = await answer(reader)
        assert (status, headers["content-type"]) == (408, "application/problem+json")
        assert json.loads(body)["type"] == "urn:stampede:problem:not-in-time"
        assert await is_closed(reader)
        assert dropped("header") == before + 1
        writer.close()


async def test_a_trickled_header_is_dropped() -> None:
    async with serving(Function().endpoint) as connect:
        reader, writer = await connect()
        writer.write(b"POST / HTTP/1.1\r\n")
        waiting = asyncio.create_task(answer(reader))
        while not waiting.done():
            writer.write(b"a: b\r\n")
            await asyncio.sleep(SECONDS / 10)
        assert waiting.result()[0] == 408
        writer.close()


@pytest.mark.parametrize("before", [False, True], ids=["first", "second"])
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST / HTTP/1.1\r\nhost: x\r\n", 408),
        (EVENT + b"ce-x: " + b"a" * (HEADER_BYTES + 1), 431),
        (b"\x16\x03\x01 no HTTP\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nno header\r\n\r\n", 400),
    ],
)
async def test_answers_of_the_server_itself_have_safe_headers(
    sent: bytes, status: int, before: bool
) -> None:
    async with serving(Function().endpoint) as connect:
        reader, writer = await connect()
        if before:
            writer.write(EVENT + b"content-length: 0\r\n\r\n")
            assert (await answer(reader))[0] == 204
        writer.write(sent)
        found, headers, body = await answer(reader)
        assert found == status
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert json.loads(body)["status"] == found
        assert await is_closed(reader)
        writer.close()


@pytest.mark.parametrize("start", [b"", b"\r\n", EVENT + b"content-length: 0\r\n\r\n\r\n"])
async def test_an_idle_connection_is_closed(start: bytes) -> None:
    """Also one that sent an empty line, which ends uvicorn's own time-out."""
    async with serving(Function().endpoint) as connect:
        reader, writer = await connect()
        writer.write(start)
        assert await is_closed(reader)
        writer.close()


@pytest.mark.parametrize(
    "headers",
    [
        [b"ce-x: " + bytes(HEADER_BYTES).replace(b"\0", b"a")],
        [b"a: b"] * MOST_HEADERS,
        [b"ce-x: " + b"a" * 8_000_000],
    ],
    ids=["one", "many", "huge"],
)
async def test_a_large_header_is_refused(headers: list[bytes]) -> None:
    function = Function()
    async with serving(function.endpoint) as connect:
        reader, writer = await connect()
        writer.write(EVENT)
        writer.write(b"\r\n".join(headers) + b"\r\ncontent-length: 0\r\n\r\n")
        status, _, body = await answer(reader)
        assert status == 431
        assert json.loads(body)["type"] == "urn:stampede:problem:headers-too-large"
        writer.close()
    assert not function.events


async def test_headers_within_the_bound_pass() -> None:
    function = Function()
    async with serving(function.endpoint) as connect:
        reader, writer = await connect()
        writer.write(EVENT + b"ce-x: " + b"a" * 60_000 + b"\r\ncontent-length: 1\r\n\r\nx")
        assert (await answer(reader))[0] == 204
        writer.close()
    assert len(function.events[0].attributes["x"]) == 60_000


async def test_trailers_never_override_attributes() -> None:
    function = Function()
    async with serving(function.endpoint) as connect:
        reader, writer = await connect()
        writer.write(
            EVENT
            + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
            + b"ce-subject: partition:3#7\r\nce-id: other\r\n\r\n"
        )
        assert (await answer(reader))[0] == 204
        writer.close()
    (event,) = function.events
    assert event.attributes["id"] == "partition:3/offset:42"
    assert event.position == ("alerts", 3, 42)
    assert event.data == b"x"


async def test_bytes_are_reserved_before_they_come() -> None:
    """Unfinished bodies hold their whole length; what does not fit is told at once, and later."""
    function = Function()
    head = EVENT + b"content-length: %d\r\n\r\n" % LIMIT
    async with serving(function.endpoint) as connect:
        held = [await connect() for _ in range(2)]
        for _, writer in held:
            writer.write(head)
        while function.held != 2 * LIMIT:
            await asyncio.sleep(0.01)
        reader, writer = await connect()
        writer.write(head)
        status, headers, body = await answer(reader)
        assert status == 429
        assert int(headers["retry-after"]) > 0
        assert json.loads(body)["type"] == "urn:stampede:problem:overloaded"
        # The rest of the refused body is dropped, and the connection serves again.
        writer.write(bytes(LIMIT) + EVENT + b"content-length: 2\r\n\r\nok")
        assert (await answer(reader))[0] == 204
        writer.close()
        for reader, writer in held:
            assert (await answer(reader))[0] == 408
            assert await is_closed(reader)
            writer.close()
        assert function.held == 0


async def test_bodies_in_chunks_are_reserved_as_they_grow() -> None:
    function = Function()
    function.go_on.clear()
    chunk = b"%x\r\n%s\r\n" % (50_000, bytes(50_000))
    async with serving(function.endpoint) as connect:
        clients = [await connect() for _ in range(4)]
        statuses = []
        for _, writer in clients:
            writer.write(EVENT + b"transfer-encoding: chunked\r\n\r\n" + 2 * chunk)
            await asyncio.sleep(0.1)
            assert (function.held or 0) <= HELD
            writer.write(b"0\r\n\r\n")
        function.go_on.set()
        for reader, writer in clients:
            statuses.append((await answer(reader))[0])
            writer.close()
    assert statuses == [204, 204, 429, 429]
    assert function.held == 0


def in_chunks(data: bytes, size: int, extension: bytes = b"") -> bytes:
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    return b"".join(b"%x%s\r\n%s\r\n" % (len(part), extension, part) for part in parts)


CHUNKED = EVENT + b"transfer-encoding: chunked\r\n\r\n"
TOO_MUCH = {
    "small": (in_chunks(bytes(FRAMING_BYTES // 2), 1), "too small"),
    "less small": (in_chunks(bytes(4 * FRAMING_BYTES), 6), "too small"),
    "leading zeros": (b"0" * 3 * EXTENSION_BYTES + b"1\r\nx\r\n", "of extensions"),
    "one extension": (b"1;" + b"x" * 2 * EXTENSION_BYTES + b"\r\nx\r\n", "of extensions"),
    "an extension without end": (b"1;" + b"x" * 100 * EXTENSION_BYTES, "of extensions"),
    "many": (in_chunks(bytes(90_000), 100, b";" + b"x" * 50), "of extensions"),
    "trailers": (b"0\r\na: %s" % (b"x" * 2 * EXTENSION_BYTES), "of extensions"),
}


@pytest.mark.parametrize(("body", "why"), TOO_MUCH.values(), ids=TOO_MUCH)
async def test_bytes_between_the_parts_of_a_body_are_bounded(body: bytes, why: str) -> None:
    function = Function()
    async with serving(function.endpoint) as connect:
        reader, writer = await connect()
        writer.write(CHUNKED + body)
        status, headers, problem = await answer(reader)
        assert (status, headers["connection"]) == (400, "close")
        assert why in json.loads(problem)["detail"]
        assert await is_closed(reader)
        writer.close()
    assert not function.events
    assert function.held == 0


async def test_a_body_in_chunks_as_small_as_an_id_comes_as_it_was_sent() -> None:
    function = Function()
    body = b"".join(b"ZTF21%07d\n" % number for number in range(7_000))
    async with serving(function.endpoint) as connect:
        reader, writer = await connect()
        writer.write(CHUNKED + in_chunks(body, 13) + b"0\r\n\r\n")
        assert (await answer(reader))[0] == 204
        writer.close()
    assert function.events[0].data == body


async def test_little_is_read_of_a_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function with a key parses nothing of a stranger's body, and ends the connection."""
    read, received = 0, LargeBodies.data_received

    def count(self: LargeBodies, data: bytes) -> None:
        nonlocal read
        read += len(data)
        received(self, data)

    monkeypatch.setattr(LargeBodies, "data_received", count)
    function = Function()
    keyed = EventEndpoint("held", function.handle, LIMIT, senders=Senders(["k" * 16]))
    async with serving(keyed) as connect:
        for head in (CHUNKED, EVENT + b"content-length: 90000000\r\n\r\n"):
            read = 0
            reader, writer = await connect()
            writer.write(head)
            status, headers, _ = await answer(reader)
            assert (status, headers["connection"]) == (401, "close")
            with pytest.raises(ConnectionError):
                await send_on(writer)
            writer.close()
            assert read < 1.1 * LINGER_BYTES


async def test_chunks_that_nobody_waits_for_end_the_connection() -> None:
    """The function answers before the body has come: the response arrives, no more is parsed."""
    async with serving(EventEndpoint("small", Function().handle, 10)) as connect:
        reader, writer = await connect()
        writer.write(CHUNKED + in_chunks(bytes(3000), 100))
        assert (await answer(reader))[0] == 413
        assert await is_closed(reader)
        writer.close()


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_refused_unread(chunked: bool) -> None:
    function = Function()
    async with serving(function.endpoint) as connect:
        reader, writer = await connect()
        if chunked:
            writer.write(EVENT + b"transfer-encoding: chunked\r\n\r\n")
            writer.write(b"%x\r\n%s\r\n" % (LIMIT + 1, bytes(LIMIT + 1)))
        else:
            writer.write(EVENT + b"content-length: 999999999999\r\n\r\n")
        status, _, body = await answer(reader)
        assert status == 413
        assert "the limit is 100,000" in json.loads(body)["detail"]
        writer.close()
    assert function.held == 0
    assert not function.events


@pytest.mark.parametrize("size", [20_000, 40_000, 300_000, 2_000_000])
async def test_a_refused_body_is_answered_before_the_connection_ends(size: int) -> None:
    endpoint = EventEndpoint("small", Function().handle, 10)
    async with serving(endpoint) as connect:
        for _ in range(5):
            reader, writer = await connect()
            writer.write(EVENT + b"connection: close\r\ncontent-length: %d\r\n\r\n" % size)
            writer.write(bytes(size))
            assert (await answer(reader))[0] == 413
            assert await is_closed(reader)
            writer.close()


@pytest.mark.parametrize("size", [10, 60_000])
async def test_a_body_that_another_protocol_would_take_is_refused(size: int) -> None:
    """As HTTP clients send that would like HTTP/2: the parser would skip the body."""
    function = Function()
    async with serving(function.endpoint) as connect:
        reader, writer = await connect()
        writer.write(EVENT + b"connection: upgrade\r\nupgrade: h2c\r\n")
        writer.write(b"content-length: %d\r\n\r\n%s" % (size, bytes(size)))
        status, _, body = await answer(reader)
        assert status == 400
        assert "send it without Upgrade" in json.loads(body)["detail"]
        writer.close()
    assert not function.events


@pytest.mark.parametrize("line", [b"POST http://[ HTTP/1.1", b"CONNECT a:1 HTTP/1.1"])
async def test_a_wrong_target_is_answered(line: bytes) -> None:
    async with serving(Function().endpoint) as connect:
        reader, writer = await connect()
        writer.write(line + b"\r\nhost: x\r\n\r\n")
        assert (await answer(reader))[0] == 400
        writer.close()


async def send_on(writer: asyncio.StreamWriter) -> None:
    for _ in range(10_000):
        writer.write(bytes(100_000))
        await writer.drain()


async def test_an_endless_refused_body_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded_protocol, "DROPPED_BYTES", 1_000_000)
    async with serving(Function().endpoint) as connect:
        reader, writer = await connect()
        writer.write(EVENT + b"content-length: 999999999999\r\n\r\n")
        assert (await answer(reader))[0] == 413
        with pytest.raises(ConnectionError):
            await send_on(writer)
        writer.close()


async def test_a_client_that_stops_sending_frees_its_bytes() -> None:
    function = Function()
    async with serving(function.endpoint) as connect:
        reader, writer = await connect()
        writer.write(EVENT + b"content-length: 90000\r\n\r\n" + bytes(80_000))
        assert (await answer(reader))[0] == 408
        assert function.held == 0
        writer.close()


async def test_a_client_that_trickles_a_body_is_dropped() -> None:
    async with serving(Function().endpoint) as connect:
        reader, writer = await connect()
        writer.write(EVENT + b"content-length: 90000\r\n\r\n")
        waiting = asyncio.create_task(answer(reader))
        while not waiting.done():
            writer.write(b"x")
            await asyncio.sleep(SECONDS / 10)
        assert waiting.result()[0] == 408
        writer.close()


async def test_a_function_that_takes_long_is_not_the_clients_fault() -> None:
    function = Function()
    function.go_on.clear()
    async with serving(function.endpoint) as connect:
        reader, writer = await connect()
        writer.write(EVENT + b"content-length: 1\r\n\r\nx")
        await asyncio.sleep(4 * SECONDS)
        function.go_on.set()
        assert (await answer(reader))[0] == 204
        writer.close()


class Endless:
    """An app whose response does not end, and what became of it."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        gone = asyncio.create_task(self.wait_for_end(receive))
        while not gone.done():
            part = bytes(200_000)
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.sleep(0)
        self.ended.set()

    async def wait_for_end(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass


async def test_a_client_that_does_not_read_its_answer_is_dropped() -> None:
    app = Endless()
    async with serving(app) as connect:
        before = dropped("answer")
        _, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await asyncio.wait_for(app.ended.wait(), 20)
        assert dropped("answer") == before + 1
        writer.close()


async def test_a_client_that_reads_slowly_but_steadily_is_served() -> None:
    app = Endless()
    async with serving(app) as connect:
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        for _ in range(20):
            await reader.readexactly(500_000)
            await asyncio.sleep(SECONDS / 5)
        assert not app.ended.is_set()
        writer.close()
        await asyncio.wait_for(app.ended.wait(), 20)


async def test_a_flood_of_pipelined_requests_is_cut() -> None:
    function = Function()
    function.go_on.clear()
    async with serving(function.endpoint) as connect:
        reader, writer = await connect()
        with closing(writer):
            writer.write((EVENT + b"content-length: 0\r\n\r\n") * 1000)
            assert await is_closed(reader)
        function.go_on.set()
    assert len(function.events) <= 1


@pytest.mark.parametrize("rest", [b"no request\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 500])
async def test_what_is_no_request_costs_the_one_before_it_no_answer(rest: bytes) -> None:
    function = Function()
    function.go_on.clear()
    async with serving(function.endpoint) as connect:
        reader, writer = await connect()
        with closing(writer):
            writer.write((EVENT + b"content-length: 0\r\n\r\n") * 2 + rest)
            await asyncio.sleep(SECONDS / 4)
            function.go_on.set()
            writer.write(rest)
            responses = await asyncio.wait_for(reader.read(), 20)
    assert [response[:1] for response in responses.split(b"HTTP/1.1 ")] == [b"", b"2", b"2"]
    assert len(function.events) == 2
