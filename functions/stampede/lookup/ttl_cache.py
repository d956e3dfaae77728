"""What was read of the store a short while ago, so that not every request reads it again."""

import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from stampede.lookup.response_warnings import call_with_warnings
from stampede.store.objects.lru_cache import Cache

T = TypeVar("T")


class TtlCache(Generic[T]):
    """The latest results of `read`, which is called again once a result is `max_age` seconds old.

    A result that may lack something (`response_warnings`) is not kept: only the request that read
    it was told.

    Threads may share it. It does not keep two of them from reading at the same time.

    Parameters
    ----------
    read
        A function of hashable arguments. What it raises is raised, and not remembered.
    max_age
        Seconds since the end of a reading.
    kept
        Arguments whose results are kept.
    """

    def __init__(self, read: Callable[..., T], max_age: float, kept: int = 1) -> None:
        self._read, self._max_age = read, max_age
        self._results = Cache(kept)

    def __call__(self, *args: Hashable) -> T:
        """What `read` returns for these arguments, or returned lately."""
        found: tuple[float, T] | None = self._results.get(args)
        if found is None or time.monotonic() - found[0] > self._max_age:
            result, lacks = call_with_warnings(lambda: self._read(*args))
            found = time.monotonic(), result
            if not lacks:
                self._results.put(args, found, 1)
        return found[1]
