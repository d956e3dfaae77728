"""Asks a server by HTTP and takes the time: in threads, each with a kept-alive connection."""

import http.client
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.parse import urlsplit

from stampede.errors import StampedeError


class Timed(NamedTuple):
    """Requests that were made: milliseconds of each, and how long all took."""

    milliseconds: list[float]
    seconds: float


def requests(url: str, paths: Sequence[str], threads: int) -> Timed:
    """GET the paths, each answered by 200. Raises `StampedeError`."""

    def connect() -> Callable[[str], None]:
        connection = connected(url)

        def get(path: str) -> None:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200 or not body:
                raise StampedeError(f"{url}{path} answered {answer.status}: {body[:200]!r}")

        return get

    return timed(connect, paths, threads)


def timed(connect: Callable[[], Callable], items: Sequence, threads: int) -> Timed:
    """Time what `connect` gives on every item, in threads that have one each."""

    def work(some: Sequence) -> list[float]:
        act, spent = connect(), []
        for item in some:
            begin = time.perf_counter()
            act(item)
            spent.append(1e3 * (time.perf_counter() - begin))
        return spent

    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(work, [items[start::threads] for start in range(threads)]))
    return Timed([each for part in parts for each in part], time.perf_counter() - begin)


def bulk(url: str, ids: Sequence[int]) -> float:
    """Seconds that a query about many alerts takes, all of it received."""
    connection = connected(url)
    begin = time.perf_counter()
    body = json.dumps({"ids": [str(one) for one in ids]})
    connection.request("POST", "/v1/cutouts", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise StampedeError(f"{url}/v1/cutouts answered {answer.status}: {answer.read()[:200]!r}")
    while answer.read(1 << 20):
        pass
    connection.close()
    return time.perf_counter() - begin


def connected(url: str) -> http.client.HTTPConnection:
    """A connection that is kept alive."""
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
