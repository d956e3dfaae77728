"""Timed HTTP requests, from threads with one kept-alive connection each."""

import http.client
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import HTTPStore

from stampede.errors import StampedeError


class Timed(NamedTuple):
    """Milliseconds of each request, and the seconds that all of them took."""

    milliseconds: list[float]
    seconds: float


def requests(url: str, paths: Sequence[str], threads: int) -> Timed:
    """GET all paths. Raises `StampedeError` if a response is an error or is empty.

    obstore asks, because it also makes the bare GETs from the store that stand beside these times.
    Python's http.client takes 0.16 ms longer for a cutout.
    """

    def connect() -> Callable[[str], None]:
        client = HTTPStore.from_url(
            url,
            client_options={"allow_http": True, "timeout": "60s"},
            retry_config={"max_retries": 0},
        )

        def get(path: str) -> None:
            try:
                body = client.get(path.removeprefix("/")).bytes()
            except (BaseError, FileNotFoundError) as error:
                raise StampedeError(f"{url}{path} was not answered: {error}") from None
            if not body:
                raise StampedeError(f"{url}{path} answered nothing")

        return get

    return timed(connect, paths, threads)


def timed(
    connect: Callable[[], Callable[[Any], object]], items: Sequence[Any], threads: int
) -> Timed:
    """Time an action on every item. Each thread gets its action from `connect`."""

    def work(share: Sequence[Any]) -> list[float]:
        act, spent = connect(), []
        for item in share:
            begin = time.perf_counter()
            act(item)
            spent.append(1e3 * (time.perf_counter() - begin))
        return spent

    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(work, [items[start::threads] for start in range(threads)]))
    return Timed([spent for part in parts for spent in part], time.perf_counter() - begin)


def joined(turns: Sequence[Timed]) -> Timed:
    """All turns as one."""
    return Timed(
        [each for turn in turns for each in turn.milliseconds], sum(turn.seconds for turn in turns)
    )


def bulk(url: str, ids: Sequence[int]) -> float:
    """Seconds until the whole response to a query for the cutouts of many alerts is received."""
    connection = connected(url)
    begin = time.perf_counter()
    body = json.dumps({"ids": [str(one) for one in ids]})
    connection.request("POST", "/v1/cutouts", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise StampedeError(
            f"{url}/v1/cutouts answered {response.status}: {response.read()[:200]!r}"
        )
    while response.read(1 << 20):
        pass
    connection.close()
    return time.perf_counter() - begin


def connected(url: str) -> http.client.HTTPConnection:
    """A kept-alive connection."""
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
