"""The HTTP client, against a server that answers with bytes chosen by the test."""

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from pathlib import Path

import pytest

from stampede.http import client as module
from stampede.http.client import Connections, Unreachable
from stampede.http.response_reader import DETAIL_BYTES, Response
from stampede_local.ports import free_port
from stampede_local.tls import make_certificate
from tests.support.events.receiver import Receiver

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 204 No Content\r\n\r\n"
MIB = 1 << 20

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Use = Callable[[Connections, str], Awaitable[None]]


async def request(reader: asyncio.StreamReader) -> bytes:
    """The body of one request."""
    head = await reader.readuntil(b"\r\n\r\n")
    (length,) = (
        int(line.partition(b":")[2])
        for line in head.lower().splitlines()
        if line.startswith(b"content-length")
    )
    return await reader.readexactly(length)


def says(*answers: bytes, close: bool = False) -> Serve:
    """A server that gives these answers in turn, then always the last."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request(reader)
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            await writer.drain()
            if close:
                return

    return serve


async def during(
    use: Use, serve: Serve, concurrency: int = 0, idle: float = 4.0, response: float = 5
) -> int:
    """Run `use` with connections and the server's URL; returns how many connections were made."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with asyncio.timeout(60):
        server = await asyncio.start_server(one, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with Connections(concurrency, idle, 5, response) as http:
            await use(http, f"http://127.0.0.1:{port}/a?b=c")
        server.close()
        return http.made


def posts(count: int, expected: Response) -> Use:
    async def use(http: Connections, url: str) -> None:
        for _ in range(count):
            assert await http.post(url, {"ce-id": "1"}, b"body") == expected

    return use


def fails(error: type[Exception], match: str) -> Use:
    async def use(http: Connections, url: str) -> None:
        with pytest.raises(error, match=match):
            await http.post(url, {}, b"body")

    return use


async def test_the_connection_is_kept() -> None:
    assert await during(posts(20, Response(204, None, b"")), says(OK)) == 1


async def test_head_and_body_are_one_packet() -> None:
    counted = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        info = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
        counted.append(struct.unpack_from("I", info, 152)[0])  # tcpi_data_segs_in, linux/tcp.h
        writer.write(OK)

    async def use(http: Connections, url: str) -> None:
        await http.post(url, {}, b"x" * 1000)

    await during(use, serve)
    assert counted == [1]


async def test_the_request() -> None:
    async def use(http: Connections, url: str) -> None:
        assert (await http.post(url, {"ce-id": "1", "ce-key": "\u00fc"}, b"body")).status == 204

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, host, *rest = head.splitlines()
        assert first == "POST /a?b=c HTTP/1.1"
        assert host.startswith("Host: 127.0.0.1:")
        assert rest == ["ce-id: 1", "ce-key: \u00fc", "Content-Length: 4", ""]
        assert await reader.readexactly(4) == b"body"
        writer.write(OK)

    await during(use, serve)


@pytest.mark.parametrize(
    ("response", "expected", "reused"),
    [
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 3\r\n\r\nwhy", Response(500, None, b"why"), True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Response(200, None, b""), True),
        (
            b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\nRetry-After: 7\r\n\r\n"
            b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n",
            Response(503, "7", b"abcde"),
            True,
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, Response(204, None, b""), True),
        (b"HTTP/1.1 204 OK\r\nConnection: close\r\n\r\n", Response(204, None, b""), False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", Response(200, None, b""), False),
        (OK + OK, Response(204, None, b""), False),
        (
            b"HTTP/1.1 400 Oh\r\nContent-Length: 5000\r\n\r\n" + 5000 * b"x",
            Response(400, None, DETAIL_BYTES * b"x"),
            True,
        ),
    ],
)
async def test_answers(response: bytes, expected: Response, reused: bool) -> None:
    assert await during(posts(3, expected), says(response)) == (1 if reused else 3)

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        for byte in response[:300]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        writer.write(response[300:])
        await request(reader)

    await during(posts(1, expected), slowly)


async def test_an_answer_may_end_with_its_connection() -> None:
    response = b"HTTP/1.1 500 Oh\r\n\r\nas long as it takes"
    expected = Response(500, None, b"as long as it takes")
    assert await during(posts(2, expected), says(response, close=True)) == 2


async def test_an_endless_answer_is_not_read_to_its_end() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 500 Oh\r\n\r\n")
        while True:
            writer.write(100_000 * b"x")
            await writer.drain()

    await during(posts(2, Response(500, None, DETAIL_BYTES * b"x")), serve)


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"HTTP/1.1 20",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
)
async def test_a_cut_connection_is_an_error(response: bytes) -> None:
    await during(fails(ConnectionResetError, "was cut"), says(response, close=True))


async def test_a_reset_connection_is_an_error_and_not_reused() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        linger = struct.pack("ii", 1, 0)  # closing resets then
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    async def use(http: Connections, url: str) -> None:
        for _ in range(2):
            with pytest.raises(OSError, match=r"cut|reset|Broken pipe"):
                await http.post(url, {}, bytes(20 * MIB))

    assert await during(use, serve) == 2


@pytest.mark.parametrize("response", [b"SSH-2.0-x\r\n\r\n", b"\0" * 50, b"HTTP/1.1 abc\r\n\r\n"])
async def test_an_answer_that_is_not_http_is_an_error(response: bytes) -> None:
    await during(fails(OSError, "not HTTP"), says(response))


async def test_an_address_without_a_server_is_unreachable() -> None:
    async def use(http: Connections, _: str) -> None:
        for url in (f"http://127.0.0.1:{free_port()}/", "http://nowhere.invalid/", "http:///"):
            with pytest.raises(Unreachable):
                await http.post(url, {}, b"")

    assert await during(use, says(OK)) == 0


async def test_a_silent_server_is_a_timeout() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    begin = time.monotonic()
    await during(fails(TimeoutError, "no answer in 0.2 s"), serve, response=0.2)
    assert 0.2 <= time.monotonic() - begin < 10


async def test_a_slow_reader_is_no_timeout() -> None:
    """The request takes longer than the timeout, but bytes keep moving."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(20):
            await reader.readexactly(3 * MIB)
            await asyncio.sleep(0.06)
        writer.write(OK)

    async def use(http: Connections, url: str) -> None:
        assert (await http.post(url, {}, bytes(60 * MIB))).status == 204

    await during(use, serve, response=1.0)


@pytest.mark.long
async def test_a_body_of_100_mb() -> None:
    body = bytes(range(256)) * (100 * MIB // 256)
    digests = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            digests.append(blake2b(await request(reader)).digest())
            writer.write(OK)

    async def use(http: Connections, url: str) -> None:
        for _ in range(2):
            assert (await http.post(url, {}, body)).status == 204

    assert await during(use, serve) == 1
    assert digests == 2 * [blake2b(body).digest()]


async def test_an_answer_before_the_end_of_the_request() -> None:
    """The early answer counts; the connection is not reused, since the server reads no further."""
    too_large = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(too_large)
        await asyncio.sleep(0.5)

    async def use(http: Connections, url: str) -> None:
        for _ in range(2):
            assert (await http.post(url, {}, bytes(50 * MIB))).status == 413

    assert await during(use, serve) == 2


async def test_a_connection_that_the_server_closed_is_not_reused() -> None:
    async def use(http: Connections, url: str) -> None:
        for _ in range(3):
            assert (await http.post(url, {}, b"")).status == 204
            await asyncio.sleep(0.05)

    assert await during(use, says(OK, close=True)) == 3


async def test_a_connection_that_was_idle_too_long_is_not_reused() -> None:
    async def use(http: Connections, url: str) -> None:
        await asyncio.gather(*(http.post(url, {}, b"") for _ in range(3)))
        await asyncio.sleep(0.3)
        await http.post(url, {}, b"")

    assert await during(use, says(OK), idle=0.2) == 4


async def test_an_answer_to_no_request_ends_the_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(OK)
        await asyncio.sleep(0.05)
        writer.write(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n")
        await reader.read()
        closed.set()

    async def use(http: Connections, url: str) -> None:
        for _ in range(2):
            assert (await http.post(url, {}, b"")).status == 204
            await closed.wait()
            closed.clear()

    closed = asyncio.Event()
    assert await during(use, serve) == 2


async def test_the_concurrency_to_a_host_is_bounded() -> None:
    now = most = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal now, most
        while True:
            await request(reader)
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.01)
            now -= 1
            writer.write(OK)

    async def use(http: Connections, url: str) -> None:
        await asyncio.gather(*(http.post(url, {}, b"") for _ in range(40)))

    assert await during(use, serve, concurrency=4) == 4
    assert most == 4


async def test_a_cancelled_request_ends_its_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = await request(reader)
        came.set()
        await asyncio.sleep(0.2 if body == b"slow" else 0)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + body)

    async def use(http: Connections, url: str) -> None:
        slow = asyncio.create_task(http.post(url, {}, b"slow"))
        await came.wait()
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert (await http.post(url, {}, b"fast")).detail == b"fast"

    came = asyncio.Event()
    assert await during(use, serve, concurrency=1) == 2


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "a\rb", "a\0b"])
async def test_a_header_cannot_contain_another(value: str) -> None:
    async def use(http: Connections, url: str) -> None:
        with pytest.raises(ValueError, match="cannot be sent"):
            await http.post(url, {"ce-id": value}, b"")

    assert await during(use, says(OK)) == 0


async def test_uvicorn_understands_it() -> None:
    bodies = [bytes([each]) * 300_000 for each in range(40)]
    with Receiver() as sink:
        async with Connections(8, 4, 5, 5) as http:
            posts = (http.post(sink.url, {"ce-id": "1"}, body) for body in bodies)
            assert {response.status for response in await asyncio.gather(*posts)} == {204}
        assert http.made <= 8
    assert sorted(event.body for event in sink.requests) == bodies


async def test_tls_needs_a_trusted_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make_certificate(certificate, key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert len(await request(reader)) == MIB
        writer.write(OK)
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with asyncio.timeout(60), Connections(1, 4, 5, 5) as http:
        with pytest.raises(Unreachable, match="certificate"):
            await http.post(url, {}, bytes(MIB))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        module._trust.cache_clear()
        assert (await http.post(url, {}, bytes(MIB))).status == 204
    module._trust.cache_clear()
    server.close()
