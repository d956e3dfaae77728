"""The time by the store's clock, which is asked now and then.

Between two questions the monotonic clock counts, so it does not matter how wrong this machine's
time of day is, or whether it jumps.
"""

import time

from stampede.runtime.clock import mjd
from stampede.store.objects.object_store import Objects

ASK_SECONDS = 60.0


class StoreClock:
    """The clock of a store. Call `refresh` before the first use, and now and then."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._mjd = self._asked = float("nan")

    def refresh(self) -> None:
        """Ask the store if the last time was `ASK_SECONDS` ago. Raises `StoreDown`."""
        if not time.monotonic() - self._asked < ASK_SECONDS:
            self._mjd, self._asked = mjd(self._objects.now()), time.monotonic()

    def now_mjd(self) -> float:
        """The present time, MJD TAI in days."""
        return self._mjd + (time.monotonic() - self._asked) / 86400
