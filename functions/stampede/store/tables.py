"""Tables of sorted runs: append, look up, and what the whole table covers.

No manifest and no lock. What is there is what a listing shows; a run whose merged run is
visible is left out; reading is a union in which the versions of one key merge.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stampede.errors import NotFound, StoreDown
from stampede.store.coverage import Coverage
from stampede.store.merge import CUTOUTS, DETECTIONS, THUMBNAILS, TableSpec, sort_unique
from stampede.store.merge_plan import Run
from stampede.store.objects import ObjectInfo, Objects
from stampede.store.reader import MIB, RunReader, stretches
from stampede.store.runs import RunInfo, RunName, RunWriter, digest, prefix, sortable

__all__ = [
    "CUTOUTS",
    "DERIVED",
    "DETECTIONS",
    "TABLES",
    "THUMBNAILS",
    "Run",
    "Table",
    "TableSpec",
]

# What alerts are stored as, each held to account for every Kafka offset by the ledger ...
TABLES = {spec.name: spec for spec in (CUTOUTS, DETECTIONS)}
# ... and what is made of that, and can be made again.
DERIVED = {spec.name: spec for spec in (THUMBNAILS,)}

# How often a listing or a lookup starts again because runs went away under it.
_TRIES = 5

A = TypeVar("A")
B = TypeVar("B")


class Table:
    """One table, as this process saw it at the last `refresh`. Safe to share between threads.

    Parameters
    ----------
    cache_bytes
        Most bytes of row groups and footers kept in memory.
    threads
        Requests to the store at once.
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
        """Write `rows` as one run of level 0; its key. Durable when this returns.

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
        """List the runs and read the footers not read before. Raises `StoreDown`."""
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
                have = {run.key for run in known}
                new = [info for info in listed if info.key not in have]
                fresh = [run for run in self.map(self._footer, new) if run]
                if len(fresh) < len(new):
                    # Gone since it was listed: the run it was merged into is there now. What was
                    # read need not be read again, however long others go on deleting.
                    seen |= {run.key: run for run in fresh}
                    continue
                self._seen = {run.key: run for run in sorted(known + fresh, key=lambda r: r.key)}
                parts = [part for run in live(self._seen.values()) for part in run]
                self._live, self._spans = parts, Spans(parts, self.spec)
                return
        raise StoreDown(f"runs of {self.spec.name} vanish faster than they can be listed")

    def runs(self) -> list[RunInfo]:
        """The parts of all live runs: complete, and input of no complete run."""
        if self._seen is None:
            self.refresh()
        return self._live

    def listed(self) -> list[RunInfo]:
        """All parts in the last listing, live or not."""
        self.runs()
        return list((self._seen or {}).values())

    def coverage(self) -> Coverage:
        """The offsets that all live runs hold together."""
        return Coverage.union(run.coverage for run in self.runs())

    def lookup(self, values: Sequence) -> pa.Table:
        """All rows whose leading key is in `values`: sorted by key, one version of each.

        Sees what the last `refresh` saw, or newer. Raises `StoreDown`.
        """
        values = sorted(set(values))
        for _ in range(_TRIES):
            try:
                return self._lookup(values)
            except NotFound:
                self.refresh()
        raise StoreDown(f"runs of {self.spec.name} vanish faster than they can be read")

    def kept(self, values: Sequence) -> pa.Table | None:
        """As `lookup`, of what is in memory; None where that takes the store."""
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
        """`function` of each item, on the table's threads if there are several."""
        if self._pool is None or len(items) < 2:
            return [function(item) for item in items]
        return list(self._pool.map(function, items))

    def _footer(self, info: ObjectInfo) -> RunInfo | None:
        """What a part's footer says; None where it is gone."""
        try:
            return self.reader.footer(info)
        except NotFound:
            return None

    def _lookup(self, values: list) -> pa.Table:
        self.runs()
        wanted = sortable(values, self.spec)
        found, cold = [], []
        # The first test spares the index, and most runs of a large table.
        for fetch in self._fetches(values, wanted, self._spans.holding(wanted)):
            if self.reader.has(fetch.run, fetch.groups):  # not worth handing to a thread
                found.append(self._matching(fetch))
            else:
                cold.append(fetch)
        return self._merged(found + self.map(self._matching, cold))

    def _fetches(
        self, values: list, wanted: np.ndarray, runs: Iterable[RunInfo]
    ) -> Iterator["Fetch"]:
        """What to read of `runs` for `values`, which are sorted; `wanted` is these, `sortable`."""
        for run in runs:
            index = self.reader.index(run)
            for some in stretches(index, index.groups(wanted).tolist()):
                here = _between(wanted, index.firsts[some[0]], index.lasts[some[-1]])
                yield Fetch(run, some, values[here.start : here.stop])

    def _matching(self, fetch: "Fetch") -> pa.Table:
        values = fetch.values
        blocks = self.reader.read(fetch.run, fetch.groups)
        rows = pa.concat_tables(block.between(values[0], values[-1]) for block in blocks)
        if len(values) == 1:
            return rows
        leading = rows[self.spec.leading]
        return rows.filter(pc.is_in(leading, pa.array(values, leading.type)))

    def _merged(self, found: Sequence[pa.Table]) -> pa.Table:
        empty = self.spec.schema.empty_table().replace_schema_metadata()
        rows = pa.concat_tables([empty, *found]).cast(self.spec.schema)
        return sort_unique(rows, self.spec)


class Fetch(NamedTuple):
    """Row groups of a part that may hold rows of `values`."""

    run: RunInfo
    groups: list[int]
    values: list


class Spans:
    """From which leading key to which each of many parts reaches."""

    def __init__(self, parts: Iterable[RunInfo], spec: TableSpec) -> None:
        self._parts = [part for part in parts if part.rows]
        self._firsts = sortable([part.first for part in self._parts], spec)
        self._lasts = sortable([part.last for part in self._parts], spec)

    def holding(self, wanted: np.ndarray) -> list[RunInfo]:
        """The parts that may hold any of `wanted`, which is sorted."""
        low = np.searchsorted(wanted, self._firsts, "left")
        high = np.searchsorted(wanted, self._lasts, "right")
        return [self._parts[number] for number in np.flatnonzero(low < high)]


def live(parts: Iterable[RunInfo]) -> list[Run]:
    """Of all parts seen, the complete runs that no complete run has as an input."""
    whole = complete(parts)
    superseded = {name for run in whole for name in run[0].inputs}
    return [run for run in whole if run[0].name.run not in superseded]


def complete(parts: Iterable[RunInfo]) -> list[Run]:
    """The runs all of whose parts are among `parts`."""
    runs: dict[str, list[RunInfo]] = {}
    for part in parts:
        runs.setdefault(part.name.run, []).append(part)
    return [
        tuple(sorted(some, key=lambda part: part.name.part))
        for some in runs.values()
        if len(some) == some[0].name.parts
    ]


def _between(wanted: np.ndarray, first: Any, last: Any) -> range:
    """Which of `wanted`, which is sorted, lie in ``[first, last]``."""
    low, high = np.searchsorted(wanted, first, "left"), np.searchsorted(wanted, last, "right")
    return range(int(low), int(high))
