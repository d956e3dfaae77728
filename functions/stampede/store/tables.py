"""Tables of sorted runs: append, look up, and the coverage of a whole table.

There is no manifest and no lock. A table is the runs in a listing, except those whose merged run is
listed too. A lookup is a union in which the versions of one key merge.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stampede.errors import NotFound, StoreDown
from stampede.store.coverage import Coverage
from stampede.store.keys import between, overlapping, sortable
from stampede.store.merge import sort_unique
from stampede.store.objects import ObjectInfo, Objects
from stampede.store.reader import MIB, RunReader, adjacent_groups
from stampede.store.run_format import RunWriter
from stampede.store.runs import RunInfo, RunName, digest, live, prefix
from stampede.store.schema import TableSpec

# How often a listing or a lookup starts again because runs were deleted meanwhile.
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
    """

    def __init__(
        self, objects: Objects, spec: TableSpec, cache_bytes: int = 256 * MIB, threads: int = 8
    ) -> None:
        self.objects = objects
        self.spec = spec
        self.reader = RunReader(objects, spec, cache_bytes)
        self._pool = ThreadPoolExecutor(threads, f"table-{spec.name}") if threads > 1 else None
        self._refreshing = threading.Lock()
        self._seen: dict[str, RunInfo] | None = None
        self._live: list[RunInfo] = []
        self._spans = Spans((), spec)

    def append(self, rows: pa.Table, coverage: Coverage) -> str:
        """Write `rows` as one run of level 0 and return its key. Durable when this returns.

        Rows may come in any order and in several versions. Raises `StoreDown`.
        """
        rows = sort_unique(rows.select(self.spec.schema.names).cast(self.spec.schema), self.spec)
        writer = RunWriter(self.spec)
        writer.add(rows)
        data = writer.close(0, (), coverage)
        key = RunName(0, digest(data)).key(self.spec.name)
        self.objects.put(key, memoryview(data))
        return key

    def refresh(self) -> None:
        """List the runs and read the footers that were not read before. Raises `StoreDown`."""
        with self._refreshing:
            seen = dict(self._seen or {})
            for _ in range(_TRIES):
                listed = [
                    info
                    for info in self.objects.list(prefix(self.spec.name))
                    if RunName.parse(info.key)
                ]
                known = [
                    replace(seen[info.key], object=info)
                    for info in listed
                    if info.key in seen and seen[info.key].object[:3] == info[:3]
                ]
                known_keys = {part.key for part in known}
                new = [info for info in listed if info.key not in known_keys]
                read = [part for part in self.map(self._footer, new) if part]
                if len(read) < len(new):
                    # A part was deleted since it was listed: the run it was merged into is there
                    # now. Keep the footers already read, so that each is read once even if other
                    # processes keep deleting.
                    seen |= {part.key: part for part in read}
                    continue
                parts = sorted(known + read, key=lambda part: part.key)
                self._seen = {part.key: part for part in parts}
                self._live = [part for run in live(parts) for part in run]
                self._spans = Spans(self._live, self.spec)
                return
        raise StoreDown(f"runs of {self.spec.name} vanish faster than they can be listed")

    def runs(self) -> list[RunInfo]:
        """The parts of all live runs: they are complete, and input of no complete run."""
        if self._seen is None:
            self.refresh()
        return self._live

    def listed(self) -> list[RunInfo]:
        """All parts in the last listing, live or not."""
        self.runs()
        return list((self._seen or {}).values())

    def coverage(self) -> Coverage:
        """The offsets that the live runs hold."""
        return Coverage.union(run.coverage for run in self.runs())

    def lookup(self, values: Sequence) -> pa.Table:
        """All rows whose leading key is in `values`: sorted by key, one version of each.

        Reads the runs of the last `refresh`, or newer ones. Raises `StoreDown`.
        """
        values = sorted(set(values))
        for _ in range(_TRIES):
            try:
                return self._lookup(values)
            except NotFound:
                self.refresh()
        raise StoreDown(f"runs of {self.spec.name} vanish faster than they can be read")

    def cached(self, values: Sequence) -> pa.Table | None:
        """As `lookup`, from the cache alone; None if that needs a request to the store."""
        if self._seen is None:
            return None
        values = sorted(set(values))
        wanted = sortable(values, self.spec)
        runs = self._spans.holding(wanted)
        if not all(self.reader.cache.holds(("index", run.key)) for run in runs):
            return None
        fetches = list(self._fetches(values, wanted, runs))
        if not all(self.reader.has(fetch.run, fetch.groups) for fetch in fetches):
            return None
        return self._merged([self._matching(fetch) for fetch in fetches])

    def close(self) -> None:
        """Stop the threads."""
        if self._pool:
            self._pool.shutdown()

    def map(self, function: Callable[[A], B], items: Sequence[A]) -> list[B]:
        """`function` of each item, on the table's threads if it has several."""
        if self._pool is None or len(items) < 2:
            return [function(item) for item in items]
        return list(self._pool.map(function, items))

    def _footer(self, info: ObjectInfo) -> RunInfo | None:
        """A part's footer; None if the part is gone."""
        try:
            return self.reader.footer(info)
        except NotFound:
            return None

    def _lookup(self, values: list) -> pa.Table:
        self.runs()
        wanted = sortable(values, self.spec)
        cached, cold = [], []
        # `holding` rules out most runs of a large table without their indexes.
        for fetch in self._fetches(values, wanted, self._spans.holding(wanted)):
            if self.reader.has(fetch.run, fetch.groups):  # too little work for a thread
                cached.append(self._matching(fetch))
            else:
                cold.append(fetch)
        return self._merged(cached + self.map(self._matching, cold))

    def _fetches(
        self, values: list, wanted: np.ndarray, runs: Iterable[RunInfo]
    ) -> Iterator["Fetch"]:
        """What to read of `runs` for `values`, which are sorted; `wanted` is `sortable(values)`."""
        for run in runs:
            index = self.reader.index(run)
            for groups in adjacent_groups(index, index.groups(wanted).tolist()):
                here = between(wanted, index.firsts[groups[0]], index.lasts[groups[-1]])
                yield Fetch(run, groups, values[here])

    def _matching(self, fetch: "Fetch") -> pa.Table:
        values = fetch.values
        blocks = self.reader.read(fetch.run, fetch.groups)
        rows = pa.concat_tables(block.between(values[0], values[-1]) for block in blocks)
        if len(values) == 1:
            return rows
        leading = rows[self.spec.leading]
        return rows.filter(pc.is_in(leading, pa.array(values, leading.type)))

    def _merged(self, matches: Sequence[pa.Table]) -> pa.Table:
        empty = self.spec.schema.empty_table().replace_schema_metadata()
        rows = pa.concat_tables([empty, *matches]).cast(self.spec.schema)
        return sort_unique(rows, self.spec)


class Fetch(NamedTuple):
    """Row groups of a part that may hold rows of `values`."""

    run: RunInfo
    groups: list[int]
    values: list


class Spans:
    """The ranges of leading keys of many parts."""

    def __init__(self, parts: Iterable[RunInfo], spec: TableSpec) -> None:
        self._parts = [part for part in parts if part.rows]
        self._firsts = sortable([part.first for part in self._parts], spec)
        self._lasts = sortable([part.last for part in self._parts], spec)

    def holding(self, wanted: np.ndarray) -> list[RunInfo]:
        """The parts that may hold any of `wanted`, which is sorted."""
        return [self._parts[i] for i in overlapping(self._firsts, self._lasts, wanted)]
