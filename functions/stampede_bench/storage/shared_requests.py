"""Requests of all pods of a run, each of which makes its share."""

import time

from stampede.config.settings import Settings
from stampede_bench.storage.client_requests import Part, RequestTimes, merge, work
from stampede_bench.storage.stress_pods import Pods


class SharedRequests:
    """As `Requests`, by all pods at once: each pod makes the same calls, and gets all times.

    A pod is one process. Raises as `Pods`.
    """

    def __init__(self, settings: Settings, pods: Pods, seconds: float) -> None:
        self._settings, self._pods, self._seconds = settings, pods, seconds
        self._calls = 0

    def __call__(self, method: str, keys: list[str], clients: int) -> RequestTimes:
        """See `Requests`; `keys` and `clients` are those of all pods."""
        self._calls += 1
        step = f"{self._calls}-{method}"
        place = self._pods.place
        self._pods.wait_for_step(step)
        since_1970 = time.time() - time.monotonic()  # machines share no other clock
        part = work(
            self._settings,
            method,
            place.keys(keys),
            place.share(clients),
            self._seconds,
            self._pods.stopped,
        )
        done = [one._replace(end=one.end + since_1970) for one in part.done]
        return merge(self._pods.exchange(step, Part(done, part.failures)))
