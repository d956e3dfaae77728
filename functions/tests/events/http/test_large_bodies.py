"""Bodies of every size, in pieces of every size, reach the function as they were sent."""

import asyncio

import pytest
from starlette.types import Receive, Scope, Send

from stampede.events.http.large_bodies import LARGE
from stampede.events.http.small_reads import READ_BYTES
from tests.events.http.test_bounded_protocol import EVENT, LIMIT, Function, answer, serving

pytestmark = pytest.mark.anyio

SIZES = (0, 1, READ_BYTES - 200, READ_BYTES, LARGE, LARGE + 1, 3 * LARGE, LIMIT)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """On uvloop, as `stampede serve` does."""
    return "asyncio", {"use_uvloop": True}


def request(size: int, more: bytes = b"") -> tuple[bytes, bytes]:
    """A request, and its body."""
    body = bytes(number * 7 % 251 for number in range(size))
    return EVENT + more + b"content-length: %d\r\n\r\n" % size, body


@pytest.mark.parametrize("piece", [99, 5_000, LARGE, 4 * LIMIT])
async def test_bodies_of_one_connection_come_as_they_were_sent(piece: int) -> None:
    function = Function()
    async with serving(function.endpoint) as connect:
        reader, writer = await connect()
        for size in SIZES:
            head, body = request(size)
            sent = head + body
            for start in range(0, len(sent), piece):
                writer.write(sent[start : start + piece])
                if start % (7 * piece) == 0:
                    await asyncio.sleep(0)
            assert (await answer(reader))[0] == 204
        writer.close()
    assert [event.data for event in function.events] == [request(size)[1] for size in SIZES]
    assert function.held == 0


async def test_requests_that_do_not_wait_for_answers_are_told_apart() -> None:
    function = Function()
    async with serving(function.endpoint) as connect:
        reader, writer = await connect()
        writer.write(b"".join(part for size in SIZES for part in request(size)))
        for _ in SIZES:
            assert (await answer(reader))[0] == 204
        writer.close()
    assert [event.data for event in function.events] == [request(size)[1] for size in SIZES]


async def test_a_sender_that_asks_first_is_told_to_go_on() -> None:
    function = Function()
    head, body = request(LIMIT, b"expect: 100-continue\r\n")
    async with serving(function.endpoint) as connect:
        reader, writer = await connect()
        writer.write(head)
        assert (await answer(reader))[0] == 100
        writer.write(body)
        assert (await answer(reader))[0] == 204
        writer.close()
    assert [event.data for event in function.events] == [body]


async def test_a_sender_that_goes_away_leaves_nothing_held() -> None:
    function = Function()
    head, body = request(LIMIT)
    async with serving(function.endpoint) as connect:
        _, writer = await connect()
        writer.write(head + body[: LIMIT // 2])
        while function.held != LIMIT:
            await asyncio.sleep(0.01)
        writer.close()
        async with asyncio.timeout(20):
            while function.held:
                await asyncio.sleep(0.01)
    assert not function.events


async def test_an_idle_connection_keeps_nothing_of_a_body() -> None:
    function = Function()
    async with serving(function.endpoint) as connect:
        reader, writer = await connect()
        writer.write(b"".join(request(LIMIT)))
        assert (await answer(reader))[0] == 204
        data = function.events.pop().data
        assert isinstance(data, bytearray)
        data.append(0)  # a `BufferError` if anything else still used its memory
        writer.close()


async def test_an_app_may_stop_waiting_and_ask_again() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            try:
                message = await asyncio.wait_for(receive(), 0.05)
                break
            except TimeoutError:
                continue
        size = str(len(message["body"])).encode()
        headers = [(b"content-length", str(len(size)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": size})

    head, body = request(LIMIT)
    async with serving(app) as connect:
        reader, writer = await connect()
        writer.write(head + body[: LIMIT // 2])
        await asyncio.sleep(0.2)
        writer.write(body[LIMIT // 2 :])
        status, _, size = await answer(reader)
        assert (status, size) == (200, b"%d" % LIMIT)
        writer.close()
