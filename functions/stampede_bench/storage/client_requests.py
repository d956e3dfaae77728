"""PUTs and GETs of small objects by many clients at once, and how long each took."""

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import NamedTuple

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.store.open import first_site
from stampede.store.s3.bucket import S3Objects

ITEM = 15_000  # bytes of a cutout


class RequestTimes(NamedTuple):
    """Requests in the order of their ends: key and milliseconds of each that succeeded."""

    keys: list[str]
    milliseconds: list[float]
    failures: int
    seconds: float

    @property
    def rate(self) -> float:
        """Successful requests per second."""
        return len(self.milliseconds) / self.seconds


class Done(NamedTuple):
    """A request that succeeded: when it ended, and how long it took."""

    end: float
    milliseconds: float
    key: str


class Part(NamedTuple):
    """The requests of one process: those that succeeded, and the number of failures."""

    done: list[Done]
    failures: int


def merge(parts: Iterable[Part]) -> RequestTimes:
    """The requests of several processes together. All times are of the same clock."""
    parts = list(parts)
    done = sorted(request for part in parts for request in part.done)
    begin = min((one.end - one.milliseconds / 1e3 for one in done), default=0.0)
    return RequestTimes(
        [one.key for one in done],
        [one.milliseconds for one in done],
        sum(part.failures for part in parts),
        done[-1].end - begin if done else 1.0,
    )


def share(total: int, number: int, of: int) -> int:
    """How many of `total` fall to one `of` so many: to the first ones one more than to others."""
    return total // of + (number < total % of)


class Requests:
    """Makes requests by many clients at once, for `seconds` at most.

    Parameters
    ----------
    pool
        A pool of this many `processes`. The clients are divided among them, since one Python
        process uses one core.
    """

    def __init__(
        self, settings: Settings, pool: ProcessPoolExecutor, processes: int, seconds: float
    ) -> None:
        self._settings, self._pool = settings, pool
        self._processes, self._seconds = processes, seconds
        list(pool.map(time.sleep, [1.0] * processes))  # starts all of them

    def __call__(self, method: str, keys: list[str], clients: int) -> RequestTimes:
        """One request for each key, except for keys whose turn does not come in time."""
        of = min(clients, self._processes)
        futures = [
            self._pool.submit(
                work,
                *(self._settings, method, keys[n::of], share(clients, n, of), self._seconds),
            )
            for n in range(of)
        ]
        return merge([future.result() for future in futures])


def _never() -> bool:
    return False


def work(
    settings: Settings,
    method: str,
    keys: list[str],
    clients: int,
    seconds: float,
    stopped: Callable[[], bool] = _never,
) -> Part:
    """The requests of one process, on the clock `time.monotonic`.

    No request begins after `seconds`, or once `stopped` returns True.
    """
    if not clients:
        return Part([], 0)
    bucket = S3Objects(first_site(settings), connections=clients)
    data = os.urandom(ITEM)
    deadline = time.monotonic() + seconds

    def client(number: int) -> Part:
        done, failures = [], 0
        for key in keys[number::clients]:
            begin = time.monotonic()
            if begin > deadline or stopped():
                break
            try:
                if method == "PUT":
                    bucket.put(key, data)
                elif len(bucket.get(key)) != ITEM:
                    raise StampedeError(f"{key} is shorter than it was stored")
            except StampedeError:
                failures += 1
            else:
                end = time.monotonic()
                done.append(Done(end, 1e3 * (end - begin), key))
        return Part(done, failures)

    with ThreadPoolExecutor(clients) as pool:
        try:
            parts = list(pool.map(client, range(clients)))
        except KeyboardInterrupt:
            deadline = 0.0  # the clients end after their requests
            raise
    bucket.close()
    return Part([one for part in parts for one in part.done], sum(part.failures for part in parts))
