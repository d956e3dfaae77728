"""How answers are written to a connection: real connections to uvicorn on uvloop."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import Receive, Scope, Send

from tests.events.http.test_bounded_protocol import answer, anyio_backend, is_closed, serving

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


def app(
    bodies: list[bytes], headers: list[tuple[bytes, bytes]], before_body: Callable[[], Awaitable]
) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for body in bodies:
            await before_body()
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body"})

    return respond


async def at_once() -> None:
    pass


async def test_the_head_of_an_answer_comes_with_its_body() -> None:
    """In one packet: what a client reads first is all of the response."""
    length = [(b"content-length", b"5000")]
    async with serving(app([b"x" * 5000], length, at_once)) as connect:
        reader, writer = await connect()
        for _ in range(20):
            writer.write(GET)
            got = await reader.read(1 << 16)
            assert got.endswith(b"x" * 5000), len(got)
            assert got.startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()


@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
async def test_bodies_of_any_size_arrive_in_order(size: int) -> None:
    bodies = [b"HTTP/1.1 looks like a head", b"a" * size, b"HTTP/1.1", b"b" * size]
    whole = b"".join(bodies)
    length = [(b"content-length", b"%d" % len(whole))]
    async with serving(app(bodies, length, at_once)) as connect:
        reader, writer = await connect()
        for _ in range(3):
            writer.write(GET)
            assert (await answer(reader))[2] == whole
        writer.close()


async def test_a_head_does_not_wait_for_a_body_that_comes_later() -> None:
    go_on = asyncio.Event()
    async with serving(app([b"late"], [(b"content-length", b"4")], go_on.wait)) as connect:
        reader, writer = await connect()
        writer.write(GET)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        go_on.set()
        assert await reader.readexactly(4) == b"late"
        writer.close()


async def test_an_answer_without_a_body_arrives_before_the_connection_closes() -> None:
    async with serving(app([], [(b"content-length", b"0")], at_once)) as connect:
        for request in (GET.replace(b"GET", b"HEAD"), GET):
            reader, writer = await connect()
            writer.write(request.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
            assert (await answer(reader))[0] == 200
            assert await is_closed(reader)
            writer.close()
