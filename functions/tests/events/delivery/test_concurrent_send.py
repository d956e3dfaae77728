"""Sending a stream of items: what bounds it, and what ends it."""

import asyncio
from collections.abc import Iterator

import pytest

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.events.delivery.concurrent_send import SendLimiter, send_all

pytestmark = pytest.mark.anyio


async def test_items_in_flight_are_bounded_but_one_may_have_any_size() -> None:
    limiter, inside = SendLimiter(2, 100), []
    release = {name: asyncio.Event() for name in ("huge", "a", "b", "c", "d")}
    tasks = []

    async def hold(name: str, size: int) -> None:
        await limiter.acquire(size)
        inside.append(name)
        await release[name].wait()
        inside.remove(name)
        await limiter.release(size)

    async def enter(name: str, size: int) -> list[str]:
        tasks.append(asyncio.ensure_future(hold(name, size)))
        return await settled()

    async def leave(name: str) -> list[str]:
        release[name].set()
        return await settled()

    async def settled() -> list[str]:
        for _ in range(50):
            await asyncio.sleep(0)
        return list(inside)

    assert await enter("huge", 1000) == ["huge"]  # larger than the bound, but alone
    assert await enter("a", 60) == ["huge"]
    assert await leave("huge") == ["a"]
    assert await enter("b", 60) == ["a"]  # too many bytes together
    assert await leave("a") == ["b"]
    assert await enter("c", 40) == ["b", "c"]
    assert await enter("d", 0) == ["b", "c"]  # too many items
    assert await leave("b") == ["c", "d"]
    await leave("c")
    await leave("d")
    await limiter.wait_until_idle()
    await asyncio.gather(*tasks)


async def test_every_item_is_sent_once_within_the_bound() -> None:
    sent, at_once, most = [], 0, 0

    async def send(item: int) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.001)
        at_once -= 1
        sent.append(item)

    settings = Settings(in_flight=20)
    assert await send_all(iter(range(100)), send, lambda _: 1, settings, asyncio.Event())
    assert sorted(sent) == list(range(100))
    assert most == 5


async def test_stopping_abandons_the_items_in_flight() -> None:
    stop, finished = asyncio.Event(), []

    async def send(item: int) -> None:
        if item == 3:
            stop.set()
        await asyncio.sleep(60 if item >= 3 else 0)
        finished.append(item)

    assert not await send_all(iter(range(100)), send, lambda _: 1, Settings(), stop)
    assert finished == [0, 1, 2]


async def test_an_error_of_the_items_or_of_a_send_is_raised_as_one_error() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise SetupError("unreadable")

    async def send(item: int) -> None:
        pass

    async def fail(item: int) -> None:
        raise SetupError("unsendable")

    for stream, act, message in ((items(), send, "unreadable"), (iter([1]), fail, "unsendable")):
        with pytest.raises(SetupError, match=message):
            await send_all(stream, act, lambda _: 1, Settings(), asyncio.Event())
