"""A table that lists the store again when its listing is too old."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from stampede.errors import StoreDown
from stampede.lookup import response_warnings
from stampede.store.programmes.rights import EVERYTHING, Rights
from stampede.store.tables.prefix_lookup import keys_with_prefix
from stampede.store.tables.range_lookup import Ranges, damaged_between, lacking, rows_in
from stampede.store.tables.table import Table
from stampede.telemetry import metrics

Rows = TypeVar("Rows", bound=Sized)


class RefreshingTable:
    """A table with a limit on the age of its listing.

    One lookup renews a listing that is older than `max_age`; concurrent lookups use the old
    listing. If the listing is older than twice `max_age`, they wait for the new one. They stop
    waiting `max_age` after that listing began: a store that hangs stores nothing new either.

    While the store cannot be listed, lookups use the old listing up to an age of `stale`, and note
    that age (`response_warnings`). One lookup in `max_age` tries to list again. A lookup that
    finds nothing in an old listing fails: the store may have stored it since.

    Parameters
    ----------
    max_age, stale
        Seconds.
    miss_age
        A lookup that finds nothing lists the store again before it returns nothing, if the listing
        is older than this at its start. Lookups that wait for the same listing share it. None:
        a lookup that finds nothing returns nothing.
    rights
        Rows of programmes that are not stored are withheld.
    """

    def __init__(
        self,
        table: Table,
        max_age: float,
        miss_age: float | None,
        stale: float = 0.0,
        rights: Rights = EVERYTHING,
    ) -> None:
        self.table = table
        self._rights = rights
        self._max_age = max_age
        self._stale = max(stale, 2 * max_age)
        self._miss_age = miss_age
        # When the current listing began, and when the latest listing began (`time.monotonic`).
        self._listed = self._began = float("-inf")
        self._failure: StoreDown | None = None  # of the latest listing
        self._sent = float("-inf")  # when `cached` last told a caller to list
        self._lock = threading.Lock()
        self._view_age = metrics.READ_VIEW_AGE.labels(table.spec.name)

    def lookup(self, values: Sequence[Any]) -> pa.Table:
        """See `Table.lookup`; notes what the rows may lack.

        Also raises `StoreDown` if only too old a listing is known.
        """
        began = time.monotonic()
        old = self.renew(began - self._max_age)
        rows = self._lookup(values)
        if not rows.num_rows:
            if old is not None:
                raise old
            if self._miss_age is not None and self.list_since(began - self._miss_age):
                rows = self._lookup(values)
        self._observe_age()
        return rows

    def _lookup(self, values: Sequence[Any]) -> pa.Table:
        """The rows that may be given; notes what they may lack.

        Damage that is known before counts too: it may be repaired once the rows have been read.
        """
        before = self.table.listing.view()
        rows = self._rights.rows(self.table.lookup(values))
        self._note_gaps(values)
        if self.table.listing.view() is not before:
            self._note(before.lacking(sorted(set(values))))
        return rows

    def between(self, ranges: Ranges) -> Iterator[pa.Table]:
        """See `range_lookup.rows_in`; notes what the rows may lack, at the end.

        Also raises `StoreDown` if only too old a listing is known.
        """
        old = self.renew(time.monotonic() - self._max_age)
        empty = True
        self._note(lacking(self.table, ranges))  # it may be repaired once the rows have been read
        for rows in rows_in(self.table, ranges):
            empty = False
            self._note(lacking(self.table, ranges))
            yield self._rights.rows(rows)
        if empty and old is not None:
            raise old
        self._observe_age()
        self._note(lacking(self.table, ranges))

    def keys_with_prefix(self, prefix: str, most: int) -> list[str]:
        """See `prefix_lookup.keys_with_prefix`; notes if anything of the table is damaged.

        Also raises `StoreDown` if only too old a listing is known.
        """
        self.renew(time.monotonic() - self._max_age)
        keys = keys_with_prefix(self.table, prefix, most)
        given = self._rights.rows(self.table.lookup(keys))
        self.note_quarantine()  # last: each of the two may be the first to find damage
        known = set(given[self.table.spec.leading].to_pylist())
        return [key for key in keys if key in known]

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

    def cached(self, key: int | str) -> pa.Table | None:
        """The rows that `lookup` returns for one key, from memory alone; never waits.

        None if no row matches, if memory does not hold all that the lookup reads, or if the caller
        is the one who has to list the store (`_must_list`).
        """
        rows = None if self._must_list() else self.table.cached(key)
        return self._noted(key, None if rows is None else self._rights.rows(rows))

    def cached_values(self, key: int | str, most: int) -> list[tuple[Any, ...]] | None:
        """As `cached`, as Python values, those withheld too; None if runs hold more than `most`."""
        return self._noted(key, None if self._must_list() else self.table.cached_values(key, most))

    def _noted(self, key: int | str, rows: Rows | None) -> Rows | None:
        """`rows`, unless there are none; notes what they may lack."""
        if rows is None or not len(rows):
            return None
        self._observe_age()
        self._note_gaps([key])
        return rows

    def _must_list(self) -> bool:
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
                self.table.refresh()
                self._listed, self._failure = self._began, None
            return True
        finally:
            self._lock.release()

    def note_quarantine(self) -> None:
        """Note that any answer may lack something, if anything in the table is damaged."""
        self._note(self._missing())

    def announce_quarantine(self) -> None:
        """Say in the headers of a stream that rows of the table are damaged, if any are."""
        if missing := self._missing():
            response_warnings.announce(response_warnings.damaged_in(self.table.spec.name, missing))

    def _missing(self) -> Mapping[str, str]:
        return {**self.table.quarantined(), **self.table.listing.omitted}

    def unreadable(self, values: Sequence[Any]) -> list[Any]:
        """Those of `values`, ascending, that may have rows that cannot be read."""
        return self.table.listing.view().unreadable(values)

    def damaged_between(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """See `range_lookup.damaged_between`."""
        return damaged_between(self.table, starts, ends)

    def _observe_age(self) -> None:
        self._view_age.observe(time.monotonic() - self._listed)

    def _note_gaps(self, values: Sequence[Any]) -> None:
        self._note(self.table.lacking(values))

    def _note(self, missing: Mapping[str, str]) -> None:
        if missing:
            response_warnings.lacks_objects(self.table.spec.name, missing)

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
