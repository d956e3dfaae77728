"""A table that lists the store again when its listing is too old."""

import time
from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from stampede.lookup import response_warnings
from stampede.lookup.refresher import Refresher
from stampede.store.programmes.rights import EVERYTHING, Rights
from stampede.store.runs.reader import Place
from stampede.store.tables.prefix_lookup import keys_with_prefix
from stampede.store.tables.range_lookup import Ranges, damaged_between, lacking, rows_in
from stampede.store.tables.table import Table

Rows = TypeVar("Rows", bound=Sized)


class RefreshingTable:
    """A table with a limit on the age of its listing, and notes of what its responses may lack.

    A lookup that finds nothing in an old listing fails: the store may have stored it since.

    Parameters
    ----------
    max_age, stale
        Seconds; see `Refresher`.
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
        self._miss_age = miss_age
        self.refresher = Refresher(table, max_age, stale)

    def lookup(self, values: Sequence[Any]) -> pa.Table:
        """See `Table.lookup`; notes what the rows may lack.

        Also raises `StoreDown` if only too old a listing is known.
        """
        began = time.monotonic()
        old = self.refresher.renew(began - self._max_age)
        rows = self._lookup(values)
        if not rows.num_rows:
            if old is not None:
                raise old
            if self._miss_age is not None and self.refresher.list_since(began - self._miss_age):
                rows = self._lookup(values)
        self.refresher.observe_age()
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
        old = self.refresher.renew(time.monotonic() - self._max_age)
        empty = True
        self._note(lacking(self.table, ranges))  # it may be repaired once the rows have been read
        for rows in rows_in(self.table, ranges):
            empty = False
            self._note(lacking(self.table, ranges))
            yield self._rights.rows(rows)
        if empty and old is not None:
            raise old
        self.refresher.observe_age()
        self._note(lacking(self.table, ranges))

    def keys_with_prefix(self, prefix: str, most: int) -> list[str]:
        """See `prefix_lookup.keys_with_prefix`; notes if anything of the table is damaged.

        Also raises `StoreDown` if only too old a listing is known.
        """
        self.refresher.renew(time.monotonic() - self._max_age)
        keys = keys_with_prefix(self.table, prefix, most)
        given = self._rights.rows(self.table.lookup(keys))
        self.note_quarantine()  # last: each of the two may be the first to find damage
        known = set(given[self.table.spec.leading].to_pylist())
        return [key for key in keys if key in known]

    def whole(self, most: int) -> Iterator[pa.Table]:
        """All rows of a table whose leading keys are texts, `most` keys at a time, ascending.

        Notes if anything of the table is damaged. Also raises `StoreDown` if only too old a listing
        is known.
        """
        self.refresher.renew(time.monotonic() - self._max_age)
        keys: list[str] = []
        while keys := keys_with_prefix(self.table, "", most, keys[-1] if keys else None):
            yield self._rights.rows(self.table.lookup(keys))
        self.note_quarantine()

    def cached_places(self, key: int | str) -> list[Place] | None:
        """Where memory has the rows that `lookup` returns for one key; never waits.

        None if no row matches, if memory does not hold all that the lookup reads, or if the caller
        is the one who has to list the store (`Refresher.must_list`). Notes what the rows may lack.
        """
        places = None if self.refresher.must_list() else self.table.finder.in_memory(key)
        return self._noted(key, places)

    def rows_at(self, places: Sequence[Place]) -> pa.Table | None:
        """The rows at these places; None if none may be given."""
        rows = self._rights.rows(self.table.finder.rows_at(places))
        return rows if rows.num_rows else None

    def cached_values(self, key: int | str, most: int) -> list[tuple[Any, ...]] | None:
        """These rows as Python values, those withheld too; None if runs hold more than `most`."""
        rows = None if self.refresher.must_list() else self.table.cached_values(key, most)
        return self._noted(key, rows)

    def _noted(self, key: int | str, rows: Rows | None) -> Rows | None:
        """`rows`, unless there are none; notes what they may lack."""
        if rows is None or not len(rows):
            return None
        self.refresher.observe_age()
        self._note_gaps([key])
        return rows

    def note_quarantine(self) -> None:
        """Note that any response may lack something, if anything in the table is damaged."""
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

    def _note_gaps(self, values: Sequence[Any]) -> None:
        self._note(self.table.lacking(values))

    def _note(self, missing: Mapping[str, str]) -> None:
        if missing:
            response_warnings.lacks_objects(self.table.spec.name, missing)
