"""Tables of sorted runs: append, look up, and the coverage of a whole table.

There is no manifest and no lock. A table is the runs in a listing, except those whose merged run is
listed too. A lookup is a union in which the versions of one key merge.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from hashlib import sha256
from typing import Any, TypeVar

import pyarrow as pa

from stampede.errors import NotFound, StoreDown
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.parquet.range_file import ChangedObject
from stampede.store.programmes.rights import EVERYTHING, Rights
from stampede.store.runs.bloom_filters import Wanted
from stampede.store.runs.merge import sort_unique
from stampede.store.runs.reader import MIB, RunReader
from stampede.store.runs.row_values import RowValues
from stampede.store.runs.run import RunInfo
from stampede.store.runs.run_name import RunName, name_of
from stampede.store.runs.schema import TableSpec
from stampede.store.runs.writer import RunWriter
from stampede.store.tables.checkpoint_files import keep_checkpoint
from stampede.store.tables.listing import Listing
from stampede.store.tables.row_finder import RowFinder
from stampede.store.tables.view import Spans

# How often a lookup starts again because runs were deleted meanwhile.
_TRIES = 5

A = TypeVar("A")
B = TypeVar("B")


class Table:
    """One table, as of the last `refresh`. Safe to share between threads.

    Parameters
    ----------
    cache_bytes
        Most bytes of row groups and footers in the cache.
    threads
        Most concurrent requests to the store.
    believe
        Whether an entry of a checkpoint stands for a footer. Otherwise every footer is read, and
        the checkpoint is only a memory of what there was.
    rights
        Rows of other programmes need not be held anywhere: `purge` removes them.
    """

    def __init__(
        self,
        objects: Objects,
        spec: TableSpec,
        cache_bytes: int = 256 * MIB,
        threads: int = 8,
        believe: bool = True,
        rights: Rights = EVERYTHING,
    ) -> None:
        self.objects = objects
        self.spec = spec
        self.rights = rights
        reader = RunReader(objects, spec, cache_bytes)
        self._pool = ThreadPoolExecutor(threads, f"table-{spec.name}") if threads > 1 else None
        self.listing = Listing(reader, self.map, believe)
        self.finder = RowFinder(reader, self.listing, self.map)

    @property
    def reader(self) -> RunReader:
        """What reads the files of the table's runs, with its cache."""
        return self.finder.reader

    def append(self, rows: pa.Table, coverage: Coverage) -> str:
        """Write `rows` as one run of level 0 and return its key. Durable when this returns.

        Rows may come in any order and in several versions. Raises `StoreDown`.
        """
        rows = sort_unique(rows.select(self.spec.schema.names).cast(self.spec.schema), self.spec)
        writer = RunWriter(self.spec)
        writer.add(rows)
        data = writer.close(0, (), coverage)
        whole = sha256(data).hexdigest()  # once, for the name and for the signature of the PUT
        key = RunName(0, name_of(whole)).key(self.spec.name)
        self.objects.put(key, memoryview(data), whole)
        return key

    def refresh(self) -> None:
        """List the runs; read footers that no refresh or checkpoint had. Raises `StoreDown`.

        What cannot be read or verified goes into quarantine. It is read again once it has changed.
        """
        self.listing.refresh()

    def runs(self) -> list[RunInfo]:
        """The parts of all live runs that can be read: input of no whole run."""
        return self.listing.view().parts

    def listed(self) -> list[RunInfo]:
        """All parts in the last listing that can be read, live or not."""
        return self.listing.parts()

    def keep_checkpoint(self, grace: timedelta) -> str | None:
        """Write a checkpoint if one is due, and delete those that are older than `grace`.

        Two are kept. Returns the key of what was written. Raises `StoreDown`.
        """
        known = self.listing.checkpoint
        return keep_checkpoint(self.objects, self.spec, self.listing.remembered(), grace, known)

    def coverage(self) -> Coverage:
        """The offsets that the live runs hold; those of a run that is damaged do not count."""
        return self.listing.view().coverage

    def quarantined(self) -> Mapping[str, str]:
        """The objects that are left out or missing, as a whole or in part: key and reason."""
        return self.listing.quarantined()

    def lacking(self, values: Sequence[Any]) -> Mapping[str, str]:
        """Objects that may hold rows whose leading key is in `values`, but cannot be read.

        Key and reason of each. A `lookup` of the same values just before may lack their rows.
        """
        return self.listing.view().lacking(sorted(set(values)))

    def lookup(self, values: Sequence[Any]) -> pa.Table:
        """All rows whose leading key is in `values`: sorted by key, one version of each.

        Reads the runs of the last `refresh`, or newer ones. What is damaged is left out, and
        `lacking` names it. Raises `StoreDown`.
        """
        wanted = Wanted.of(values, self.spec)
        for _ in range(_TRIES):
            try:
                view, faults = self.listing.view(), self.listing.faults_found
                rows = self.finder.find(wanted, view.spans)
                # Of a part found damaged on the way the inputs may be there still: read them.
                found = self.listing.faults_found != faults
                if not found or self.listing.view().parts == view.parts:
                    return rows
            except (NotFound, ChangedObject):
                self.refresh()
        raise StoreDown(f"runs of {self.spec.name} vanish faster than they can be read")

    def cached(self, key: int | str) -> pa.Table | None:
        """What `lookup` returns for one key, from memory; None if that needs a request."""
        found = self.finder.in_memory(key)
        return None if found is None else self.finder.rows_at(found)

    def cached_values(self, key: int | str, most: int) -> list[tuple[Any, ...]] | None:
        """The rows of `cached` as Python values; None also if runs hold more than `most`."""
        found = self.finder.in_memory(key)
        if found is None or sum(end - start for _, start, end in found) > most:
            return None
        if len(found) == 1:
            [(block, start, end)] = found
            return block.values.between(start, end)
        rows = self.finder.rows_at(found)
        return RowValues(rows).between(0, rows.num_rows)

    def close(self) -> None:
        """Stop the threads."""
        if self._pool:
            self._pool.shutdown()

    def map(self, function: Callable[[A], B], items: Sequence[A]) -> list[B]:
        """`function` of each item, on the table's threads if it has several."""
        if self._pool is None or len(items) < 2:
            return [function(item) for item in items]
        return list(self._pool.map(function, items))

    def lookup_among(self, values: Sequence[Any], parts: Iterable[RunInfo]) -> pa.Table:
        """As `lookup`, in these parts alone. Raises `NotFound` if one is gone, `StoreDown`."""
        return self.finder.find(Wanted.of(values, self.spec), Spans(parts, self.spec))
