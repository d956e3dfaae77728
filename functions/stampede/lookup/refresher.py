"""When a table's store is listed again, and who waits for it."""

import threading
import time

from stampede.errors import StoreDown
from stampede.lookup import response_warnings
from stampede.store.tables.table import Table
from stampede.telemetry import read_metrics


class Refresher:
    """Limits the age of a table's listing. Safe to share between threads.

    One lookup renews a listing that is older than `max_age`; concurrent lookups use the old
    listing. If the listing is older than twice `max_age`, they wait for the new one. They stop
    waiting `max_age` after that listing began: a store that hangs stores nothing new either.

    While the store cannot be listed, lookups use the old listing up to an age of `stale`, and note
    that age (`response_warnings`). One lookup in `max_age` tries to list again.

    Parameters
    ----------
    max_age, stale
        Seconds.
    """

    def __init__(self, table: Table, max_age: float, stale: float) -> None:
        self._table = table
        self._max_age = max_age
        self._stale = max(stale, 2 * max_age)
        # When the current listing began, and when the latest listing began (`time.monotonic`).
        self._listed = self._began = float("-inf")
        self._failure: StoreDown | None = None  # of the latest listing
        self._sent = float("-inf")  # when `must_list` last told a caller to list
        self._lock = threading.Lock()
        self._view_age = read_metrics.READ_VIEW_AGE.labels(table.spec.name)

    def renew(self, moment: float, wait_for_end: bool = False) -> StoreDown | None:
        """List the store as `list_since`, or keep the old listing and note its age.

        Returns the failure of the listing if the old one is kept.

        Raises `StoreDown` if the listing is older than `stale`.
        """
        failure = self._failure if self._failed_since(moment) else None
        if failure is None:
            try:
                self.list_since(moment, wait_for_end)
            except StoreDown as error:
                failure = self._failure = error
        age = time.monotonic() - self._listed
        if age > self._stale:
            raise failure or StoreDown(f"the store was last listed {age:.0f} s ago")
        if failure is not None or age > max(2 * self._max_age, 1.0):
            response_warnings.from_view_of_age(age)
        return failure

    def must_list(self) -> bool:
        """Whether a caller who wants rows from memory must call `lookup`, which lists the store.

        When the listing becomes too old, only the first caller must. The others use the old
        listing, as they do while it is being renewed. One thread calls this, the event loop's.
        """
        now = time.monotonic()
        if self._listed >= now - self._max_age:
            return False
        if self._failure or self._seconds_to_wait():
            return True
        sent = self._listed < self._sent and now < self._listed + 2 * self._max_age
        if sent or self._lock.locked():
            return False
        self._sent = now
        return True

    def list_since(self, moment: float, wait_for_end: bool = True) -> bool:
        """List the store, unless the current listing began at or after `moment`.

        If another thread is listing, wait for it: to its end, or for `_seconds_to_wait`.

        Parameters
        ----------
        moment
            On the clock of `time.monotonic`.

        Returns
        -------
        Whether this call listed the store or waited for a listing that another thread completed.
        """
        if self._listed >= moment:
            return False
        mine = self._lock.acquire(blocking=False)
        timeout = -1 if wait_for_end else self._seconds_to_wait()
        if not mine and not self._lock.acquire(timeout=timeout):
            return False
        try:
            if self._listed < moment:
                self._began = time.monotonic()
                self._table.refresh()
                self._listed, self._failure = self._began, None
            return True
        finally:
            self._lock.release()

    def observe_age(self) -> None:
        """Note the age of the listing that a response was made from."""
        self._view_age.observe(time.monotonic() - self._listed)

    def _failed_since(self, moment: float) -> bool:
        """Whether the latest listing failed so recently that no other is tried yet."""
        return self._failure is not None and self._began >= max(moment, self._listed)

    def _seconds_to_wait(self) -> float:
        """How long to wait for a listing that another thread makes; -1 is to its end."""
        now = time.monotonic()
        if self._listed < 0:
            return -1  # the table has no listing yet
        if self._listed >= now - 2 * self._max_age:
            return 0
        return max(0.0, self._began + self._max_age - now)
