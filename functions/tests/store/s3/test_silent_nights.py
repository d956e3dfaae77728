"""A night whose packs do not come holds up nobody who reads another one."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from stampede.errors import NotFound, StoreDown, StoreRefused
from stampede.store.objects.address import StoreAddress
from stampede.store.s3 import bucket as s3
from stampede.store.s3 import silent_nights
from stampede.store.s3.bucket import S3Objects
from stampede.store.s3.silent_nights import FAILURES, HELD_SECONDS, PAUSE_SECONDS, SilentNights
from tests.support.store.faulty_s3 import error, faulty_s3, part, stalled

COLD, OTHER = "packs/60900/a.parquet", "packs/60901/a.parquet"
FOUR = part(b"4567", 4, 10)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(silent_nights, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def ask(nights: SilentNights, key: str, end: Callable[[], object] = lambda: None) -> None:
    with nights.asking(key):
        end()


def fail() -> None:
    raise StoreDown("TimedOut")


def wait_in_vain(nights: SilentNights, clock: list[float], key: str = COLD) -> None:
    def end() -> None:
        clock[0] += HELD_SECONDS
        fail()

    with pytest.raises(StoreDown, match="TimedOut"):
        ask(nights, key, end)


def silence(nights: SilentNights, clock: list[float]) -> None:
    for _ in range(FAILURES):
        wait_in_vain(nights, clock)


def test_others_of_a_silent_night_fail_at_once(clock: list[float]) -> None:
    nights = SilentNights()
    silence(nights, clock)
    with pytest.raises(StoreDown, match="what was asked of packs/60900/"):
        ask(nights, "packs/60900/b.parquet")
    ask(nights, OTHER)
    ask(nights, "packets/60900/a.parquet")


def test_one_get_at_a_time_asks_again_after_a_pause(clock: list[float]) -> None:
    nights = SilentNights()
    silence(nights, clock)
    clock[0] += PAUSE_SECONDS

    def ask_meanwhile() -> None:
        with pytest.raises(StoreDown, match="60900"):
            ask(nights, COLD)

    ask(nights, COLD, ask_meanwhile)
    assert not nights.silent(COLD)
    ask(nights, COLD)


def test_who_asks_again_in_vain_begins_a_new_pause(clock: list[float]) -> None:
    nights = SilentNights()
    silence(nights, clock)
    clock[0] += PAUSE_SECONDS
    wait_in_vain(nights, clock)
    with pytest.raises(StoreDown, match="60900"):
        ask(nights, COLD)


@pytest.mark.parametrize("answer", [NotFound("no such object"), StoreRefused("AccessDenied")])
def test_any_answer_ends_the_silence(clock: list[float], answer: Exception) -> None:
    nights = SilentNights()
    silence(nights, clock)
    clock[0] += PAUSE_SECONDS

    def refuse() -> None:
        raise answer

    with pytest.raises(type(answer)):
        ask(nights, COLD, refuse)
    assert not nights.silent(COLD)


def test_failures_with_answers_between_are_no_silence(clock: list[float]) -> None:
    nights = SilentNights()
    for _ in range(3 * FAILURES):
        wait_in_vain(nights, clock)
        ask(nights, COLD)
    assert not nights.silent(COLD)


def test_failures_at_once_are_no_silence() -> None:
    """When the whole store is down nobody waits, and all must ask it as soon as it is back."""
    nights = SilentNights()
    for _ in range(3 * FAILURES):
        with pytest.raises(StoreDown, match="TimedOut"):
            ask(nights, COLD, fail)
    assert not nights.silent(COLD)


def test_tables_are_never_silent(clock: list[float]) -> None:
    """All processes need them, and they lie in no storage class of their own."""
    nights = SilentNights()
    for _ in range(3 * FAILURES):
        wait_in_vain(nights, clock, "tables/cutouts/0-a.parquet")


@pytest.mark.anyio
async def test_many_readers_of_a_silent_night_wait_for_one_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("CONNECT_SECONDS", "FIRST_READ_SECONDS", "READ_SECONDS"):
        monkeypatch.setattr(s3, name, 1.0)
    with faulty_s3(stalled) as server:
        objects = S3Objects(StoreAddress(f"http://{server.host}/bucket", "key", "secret"))
        gets = objects.async_gets()
        assert await asyncio.gather(*(gets.get(COLD, 4, 4) for _ in range(20))) == 20 * [None]
        await gets.close()
        began, asked = time.monotonic(), len(server.requests)
        with ThreadPoolExecutor(2) as pool:
            failed = [pool.submit(objects.get, COLD, 4, 4).exception() for _ in range(20)]
        assert all(isinstance(each, StoreDown) for each in failed)
        assert len(server.requests) == asked
        assert time.monotonic() - began < 1


def test_a_process_without_an_event_loop_asks_each_time() -> None:
    """What stores, checks and copies has time: it must read a pack as soon as it is there."""
    unavailable = [error("503 Slow Down", "SlowDown")] * 3 * (FAILURES + 1)
    with faulty_s3(*unavailable, FOUR) as server:
        objects = S3Objects(StoreAddress(f"http://{server.host}/bucket", "key", "secret"))
        for _ in range(FAILURES + 1):
            with pytest.raises(StoreDown):
                objects.get(COLD, 4, 4)
        assert objects.get(COLD, 4, 4) == b"4567"
