"""Many HTTP clients at once, each with one kept-alive connection, in a process of their own."""

import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple
from urllib.parse import urlsplit

SECONDS = 60  # longest that a client waits for a response


class Crowd(NamedTuple):
    """What many clients met: milliseconds of each response, the seconds of all, failures."""

    milliseconds: list[float]
    seconds: float
    failures: int


def crowd(url: str, paths: Sequence[str], clients: int) -> Crowd:
    """GET all paths from this many clients at once; each asks again as soon as it has a response.

    A response that is not 200, is empty or does not come is a failure; its client connects anew.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_run, url, paths, clients).result()


def _run(url: str, paths: Sequence[str], clients: int) -> Crowd:
    return asyncio.run(_all(url, paths, clients))


async def _all(url: str, paths: Sequence[str], clients: int) -> Crowd:
    spent: list[float] = []
    failures = 0
    host = urlsplit(url).netloc

    async def client(number: int) -> None:
        nonlocal failures
        connection = None
        for path in paths[number::clients]:
            begin = time.perf_counter()
            try:
                async with asyncio.timeout(SECONDS):
                    connection = connection or await asyncio.open_connection(*host.split(":"))
                    await _get(*connection, host, path)
            except (OSError, EOFError, ValueError):
                failures += 1
                if connection:
                    connection[1].close()
                connection = None
            else:
                spent.append(1e3 * (time.perf_counter() - begin))
        if connection:
            connection[1].close()

    begin = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(clients)))
    return Crowd(spent, time.perf_counter() - begin, failures)


async def _get(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, path: str
) -> None:
    """Ask for a path. Raises `ValueError` if the response is not 200 with a body."""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length:")[2].partition(b"\r")[0])
    body = await reader.readexactly(length)
    if b" 200 " not in head.partition(b"\r")[0] or not body:
        raise ValueError(f"{path} answered {head!r}")
