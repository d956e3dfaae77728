"""GETs on an event loop: the range that was asked for, or None."""

import asyncio
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from stampede.config.settings import Settings
from stampede.store.objects.address import StoreAddress
from stampede.store.open import open_objects
from stampede.store.s3 import async_gets as s3_async_gets
from stampede.store.s3 import bucket as s3
from stampede.store.s3.async_gets import AT_ONCE, S3AsyncGets
from stampede.store.s3.bucket import S3Objects
from stampede_local.tls import make_certificate
from tests.support.store.faulty_s3 import (
    Answer,
    FaultyS3,
    answer,
    closed,
    error,
    faulty_s3,
    nonsense,
    part,
    stalled,
    trickling,
)

pytestmark = pytest.mark.anyio

KEY = "packs/60000/a-b_c.parquet"
FOUR = part(b"4567", 4, 10)


def gets_of(server: FaultyS3, scheme: str = "http", **more) -> S3AsyncGets:
    address = StoreAddress(f"{scheme}://{server.host}/bucket", "key", "secret", **more)
    return S3Objects(address).async_gets()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


async def test_a_range() -> None:
    with faulty_s3(FOUR) as server:
        gets = gets_of(server)
        for _ in range(20):
            assert await gets.get(KEY, 4, 4) == b"4567"
        await gets.close()
    assert server.connections == 1
    assert server.requests == 20 * [f"GET /bucket/{KEY} HTTP/1.1"]
    assert "range: bytes=4-7" in server.heads[0]
    assert f"host: {server.host}\n" in server.heads[0] + "\n"
    signed = "signedheaders=host;x-amz-content-sha256;x-amz-date"
    assert "authorization: aws4-hmac-sha256 credential=key/" in server.heads[0]
    assert signed in server.heads[0]


async def test_without_a_key_nothing_is_signed() -> None:
    with faulty_s3(FOUR) as server:
        gets = S3Objects(StoreAddress(f"http://{server.host}/bucket", "", "")).async_gets()
        assert await gets.get(KEY, 4, 4) == b"4567"
    assert "authorization" not in server.heads[0]


@pytest.mark.parametrize(
    "fault",
    [
        error("503 Slow Down", "SlowDown"),
        error("403 Forbidden", "SignatureDoesNotMatch"),
        error("404 Not Found", "NoSuchKey"),
        error("416 Requested Range Not Satisfiable", "InvalidRange"),
        closed,
        stalled,
        nonsense,
        part(b"0123", 0, 10),
        part(b"45", 4, 10),
        part(b"45", 4, 10, missing=2),
        answer("200 OK", b"4567"),
        answer("206 Partial Content", b"4567"),
        answer("206 Partial Content", b"456789", "Content-Range: bytes 4-7/10"),
        answer("206 Partial Content", b"45", "Content-Range: bytes 4-7/10"),
        answer("200 OK", bytes(3 << 20), 'ETag: "x"'),
    ],
    ids=[
        "503",
        "403",
        "404",
        "416",
        "closed",
        "stalled",
        "nonsense",
        "another range",
        "a part",
        "cut short",
        "no range",
        "no Content-Range",
        "more",
        "fewer",
        "all of it",
    ],
)
async def test_anything_else_is_none_after_one_try(
    fault: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault is stalled:
        monkeypatch.setattr(s3, "FIRST_READ_SECONDS", 0.3)
    with faulty_s3(fault, FOUR) as server, within(30):
        gets = gets_of(server)
        assert await gets.get(KEY, 4, 4) is None
        assert len(server.requests) == 1
        assert await gets.get(KEY, 4, 4) == b"4567"


async def test_no_server() -> None:
    with faulty_s3(FOUR) as server:
        gets = gets_of(server)
    with within(20):
        assert await gets.get(KEY, 4, 4) is None


@pytest.mark.parametrize("key", ["a b", "a+b", "a%2Fb", "é", "a?b", "a#b", "a\r\nb", ""])
async def test_a_key_that_a_url_spells_otherwise_is_not_asked_for(key: str) -> None:
    with faulty_s3(FOUR) as server:
        assert await gets_of(server).get(key, 4, 4) is None
    assert not server.requests


async def test_a_certificate_authority(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "cert.key"
    make_certificate(certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with faulty_s3(FOUR, context=context) as server:
        good = gets_of(server, "https", ca_file=certificate)
        assert await good.get(KEY, 4, 4) == b"4567"
        assert await gets_of(server, "https").get(KEY, 4, 4) is None


async def test_so_many_are_under_way_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "FIRST_READ_SECONDS", 1.0)
    with faulty_s3(stalled) as server:
        gets = gets_of(server)
        waiting = [asyncio.ensure_future(gets.get(KEY, 4, 4)) for _ in range(2 * AT_ONCE)]
        await asyncio.sleep(0.5)
        assert server.connections <= AT_ONCE
        assert await asyncio.gather(*waiting) == len(waiting) * [None]
        assert server.connections > AT_ONCE


async def test_after_some_in_a_row_without_an_answer_none_is_tried_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1000.0]
    fake = SimpleNamespace(monotonic=lambda: clock[0], time=time.time)
    monkeypatch.setattr(s3_async_gets, "time", fake)
    with faulty_s3(closed, closed, FOUR, closed, closed, closed, FOUR) as server:
        gets = gets_of(server)
        expected = [None, None, b"4567", None, None, None]  # a response begins the count anew
        key = "tables/cutouts/a.parquet"
        assert [await gets.get(key, 4, 4) for _ in range(6)] == expected
        asked = len(server.requests)
        assert await gets.get(key, 4, 4) is None
        assert len(server.requests) == asked
        clock[0] += 31
        assert await gets.get(key, 4, 4) == b"4567"


async def test_a_byte_now_and_then_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(s3, "FIRST_READ_SECONDS", 0.5)
    with faulty_s3(trickling) as server, within(4):
        gets = gets_of(server)
        # Those that wait for their turn wait no longer either.
        waiting = [gets.get(KEY, 0, 1000) for _ in range(2 * AT_ONCE)]
        assert await asyncio.gather(*waiting) == len(waiting) * [None]


async def test_the_end_ends_what_is_under_way() -> None:
    with faulty_s3(stalled) as server, within(4):
        gets = gets_of(server)
        waiting = asyncio.ensure_future(gets.get(KEY, 4, 4))
        while not server.requests:
            await asyncio.sleep(0.01)
        await gets.close()
        assert await waiting is None


async def test_ceph_takes_the_signature(bucket: Settings) -> None:
    objects = open_objects(bucket)
    assert isinstance(objects, S3Objects)
    objects.put(KEY, b"0123456789")
    gets = objects.async_gets()
    assert await gets.get(KEY, 4, 4) == b"4567"
    assert await gets.get(KEY, 8, 4) is None
    assert await gets.get("packs/60000/absent.parquet", 4, 4) is None
    await gets.close()
