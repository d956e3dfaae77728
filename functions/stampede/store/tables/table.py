"""Tables of sorted runs: append, look up, and the coverage of a whole table.

There is no manifest and no lock. A table is the runs in a listing, except those whose merged run is
listed too. A lookup is a union in which the versions of one key merge.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.objects.object_store import Objects, read_twice
from stampede.store.offsets.coverage import Coverage
from stampede.store.parquet.range_file import ChangedObject
from stampede.store.programmes.rights import EVERYTHING, Rights
from stampede.store.runs.bloom_filters import Wanted
from stampede.store.runs.footer import RunIndex
from stampede.store.runs.merge import sort_unique
from stampede.store.runs.quarantine import Fault
from stampede.store.runs.reader import MIB, Block, RunReader, adjacent_groups
from stampede.store.runs.row_values import RowValues
from stampede.store.runs.run import RunInfo, RunName, name_of
from stampede.store.runs.schema import TableSpec
from stampede.store.runs.writer import RunWriter
from stampede.store.tables.checkpoint_files import keep_checkpoint
from stampede.store.tables.listing import Listing
from stampede.store.tables.view import Spans

# How often a lookup starts again because runs were deleted meanwhile.
_TRIES = 5
# Indexes that are read at once, and held until what they name is known.
_TOGETHER = 32

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
        self.reader = RunReader(objects, spec, cache_bytes)
        self._pool = ThreadPoolExecutor(threads, f"table-{spec.name}") if threads > 1 else None
        self.listing = Listing(self.reader, self.map, believe)

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

    def include(self, parts: Sequence[RunInfo]) -> None:
        """Read these parts too, as if listed: they were written or read back just now."""
        self.listing.include(parts)

    def runs(self) -> list[RunInfo]:
        """The parts of all live runs that can be read: input of no whole run."""
        return self.listing.view().parts

    def listed(self) -> list[RunInfo]:
        """All parts in the last listing that can be read, live or not."""
        return self.listing.parts()

    def in_quarantine(self, key: str) -> bool:
        """Whether a part is left out as a whole."""
        return self.listing.quarantine.holds(key)

    def remembered(self) -> list[RunInfo]:
        """What a checkpoint names: all parts whose footer is known, those that are left out too."""
        return self.listing.remembered()

    def keep_checkpoint(self, grace: timedelta) -> str | None:
        """Write a checkpoint if one is due, and delete those that are older than `grace`.

        Two are kept. Returns the key of what was written. Raises `StoreDown`.
        """
        known = self.listing.checkpoint
        return keep_checkpoint(self.objects, self.spec, self.remembered(), grace, known)

    def vanished(self) -> list[RunInfo]:
        """Parts that a checkpoint or an earlier listing shows, and whose offsets are lost now."""
        return self.listing.vanished()

    def coverage(self) -> Coverage:
        """The offsets that the live runs hold; those of a run that is damaged do not count."""
        return self.listing.view().coverage

    def quarantined(self) -> Mapping[str, str]:
        """The objects that are left out or missing, as a whole or in part: key and reason."""
        return self.listing.quarantined()

    def omitted(self) -> Mapping[str, str]:
        """Parts that the latest listing left out, by key with the reason; they are read.

        It may have left out parts that this process does not know: any lookup may lack rows.
        """
        return self.listing.omitted

    def lacking(self, values: Sequence[Any]) -> Mapping[str, str]:
        """Objects that may hold rows whose leading key is in `values`, but cannot be read.

        Key and reason of each. A `lookup` of the same values just before may lack their rows.
        """
        return self.listing.view().lacking(sorted(set(values)))

    def put_into_quarantine(
        self,
        part: RunInfo,
        reason: str,
        group: int | None = None,
        index: RunIndex | None = None,
    ) -> None:
        """Leave out a part that was found damaged, or one of its row groups.

        `index` says which keys the row group may have; without it, all those of the part.
        """
        ends = (part.first, part.last) if group is None or index is None else index.ends_of(group)
        self.listing.add(Fault(part.object, reason, part, group, *ends))

    def lookup(self, values: Sequence[Any]) -> pa.Table:
        """All rows whose leading key is in `values`: sorted by key, one version of each.

        Reads the runs of the last `refresh`, or newer ones. What is damaged is left out, and
        `lacking` names it. Raises `StoreDown`.
        """
        wanted = Wanted.of(values, self.spec)
        for _ in range(_TRIES):
            try:
                view, faults = self.listing.view(), self.listing.faults_found
                rows = self._lookup(wanted, view.spans)
                # Of a part found damaged on the way the inputs may be there still: read them.
                found = self.listing.faults_found != faults
                if not found or self.listing.view().parts == view.parts:
                    return rows
            except (NotFound, ChangedObject):
                self.refresh()
        raise StoreDown(f"runs of {self.spec.name} vanish faster than they can be read")

    def cached(self, key: int | str) -> pa.Table | None:
        """What `lookup` returns for one key, from memory; None if that needs a request."""
        found = self._cached(key)
        return None if found is None else self._rows(found)

    def cached_values(self, key: int | str, most: int) -> list[tuple[Any, ...]] | None:
        """The rows of `cached` as Python values; None also if runs hold more than `most`."""
        found = self._cached(key)
        if found is None or sum(end - start for _, start, end in found) > most:
            return None
        if len(found) == 1:
            [(block, start, end)] = found
            return block.values.between(start, end)
        rows = self._rows(found)
        return RowValues(rows).between(0, rows.num_rows)

    def _rows(self, found: Iterable[tuple[Block, int, int]]) -> pa.Table:
        """The rows at these places."""
        return self._merged([block.rows.slice(start, end - start) for block, start, end in found])

    def _cached(self, key: int | str) -> list[tuple[Block, int, int]] | None:
        """Where the rows of one key are in memory; None if a request may find more."""
        if not self.listing.listed:
            return None
        wanted = Wanted.of([key], self.spec)
        found = []
        for run, section, passing in self._pieces(wanted, self.listing.view().spans):
            index = self.reader.cached_index(run, section)
            if index is None:
                return None
            if not passing.passing(index.filter).values:
                continue
            for group in index.groups(wanted):
                if self.listing.quarantine.holds(run.key, group):
                    continue
                block = self.reader.cached_block(run, group)
                if block is None:
                    return None
                if place := block.place(key):
                    found.append((block, *place))
        return found

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
        return self._lookup(Wanted.of(values, self.spec), Spans(parts, self.spec))

    def _lookup(self, wanted: Wanted, spans: Spans) -> pa.Table:
        cached, cold = [], []
        for fetch in self._fetches(self._pieces(wanted, spans)):
            if self.reader.has(fetch.run, fetch.groups):  # too little work for a thread
                cached.append(self._matching(fetch))
            else:
                cold.append(fetch)
        return self._merged(cached + self.map(self._matching, cold))

    def _pieces(self, wanted: Wanted, spans: Spans) -> Iterator["Piece"]:
        """The parts and sections that may have any of `wanted`, as far as is known already."""
        for run in spans.holding(wanted):
            passing = wanted.passing(run.filter)
            if run.sections is None:
                if passing.values:
                    yield Piece(run, None, passing)
                continue
            for number, here in run.sections.holding(passing):
                yield Piece(run, number, here)

    def _fetches(self, pieces: Iterable["Piece"]) -> Iterator["Fetch"]:
        """What to read of these pieces. Indexes that are not in the cache are read together."""
        pieces = iter(pieces)
        while some := list(itertools.islice(pieces, _TOGETHER)):
            cold = not all(self.reader.has_index(piece.run, piece.section) for piece in some)
            indexes = self.map(self.index, some) if cold else map(self.index, some)
            for piece, index in zip(some, indexes, strict=True):
                if index is not None:
                    yield from self._fetches_of(piece, index)

    def _fetches_of(self, piece: "Piece", index: RunIndex) -> Iterator["Fetch"]:
        run, wanted = piece.run, piece.wanted.passing(index.filter)
        groups = [
            group
            for group in index.groups(wanted)
            if not self.listing.quarantine.holds(run.key, group)
        ]
        # A filter takes up to 192 KB, which nobody needs while the row groups are read.
        held = replace(index, filter=None) if index.filter else index
        for adjacent in adjacent_groups(index, groups):
            yield Fetch(run, held, adjacent, index.within(adjacent, wanted).values)

    def index(self, piece: "Piece") -> RunIndex | None:
        """The index of a piece; None if its part is damaged, which is put into quarantine."""
        run, section, _ = piece
        try:
            return read_twice(lambda: self.reader.index(run, section), Damaged)
        except Damaged as error:
            self.put_into_quarantine(run, error.message)
            return None

    def _matching(self, fetch: "Fetch") -> pa.Table:
        values = fetch.values
        pieces = [block.between(values[0], values[-1]) for block in self.blocks(fetch)]
        # Joining even one table takes 0.1 ms: Arrow looks at every column.
        rows = pieces[0] if len(pieces) == 1 else pa.concat_tables([self.spec.no_rows, *pieces])
        if len(values) == 1:
            return rows
        leading = rows[self.spec.leading]
        return rows.filter(pc.is_in(leading, pa.array(values, leading.type)))

    def blocks(self, fetch: "Fetch") -> list[Block]:
        """Row groups of a part; those that are damaged are put into quarantine."""
        try:
            return self.reader.read(fetch.run, fetch.groups, fetch.index)
        except Damaged:
            blocks = []
        for group in fetch.groups:  # once more, each alone
            try:
                blocks += self.reader.read(fetch.run, [group], fetch.index)
            except Damaged as error:
                reason = f"row group {group}: {error.message}"
                self.put_into_quarantine(fetch.run, reason, group, fetch.index)
        return blocks

    def _merged(self, matches: Sequence[pa.Table]) -> pa.Table:
        found = [rows for rows in matches if rows.num_rows]
        if len(found) < 2:  # rows of one run are sorted, and one version of each
            return found[0] if found else self.spec.no_rows
        return sort_unique(pa.concat_tables(found), self.spec)


class Piece(NamedTuple):
    """A part, or one of its sections, that may hold rows of `wanted`."""

    run: RunInfo
    section: int | None
    wanted: Wanted


@dataclass(frozen=True, eq=False)
class Fetch:
    """Row groups of a part that may hold rows of `values`.

    `index` describes them. It is kept until they are read, since what the reader gives next may be
    another: that of a section instead of the whole part.
    """

    run: RunInfo
    index: RunIndex
    groups: list[int]
    values: Sequence[Any]
