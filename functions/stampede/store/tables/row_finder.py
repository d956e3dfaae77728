"""Which rows of a table's runs a lookup wants, and how they are read."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from stampede.errors import Damaged
from stampede.store.objects.object_store import read_twice
from stampede.store.runs.bloom_filters import Wanted
from stampede.store.runs.footer import RunIndex
from stampede.store.runs.merge import sort_unique
from stampede.store.runs.reader import Block, Place, RunReader, adjacent_groups
from stampede.store.runs.run import RunInfo
from stampede.store.tables.listing import Listing, Map
from stampede.store.tables.view import Spans

# Indexes that are read at once, and held until what they name is known.
_TOGETHER = 32


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


class RowFinder:
    """Finds rows in the runs of a table. What it finds damaged it puts into quarantine."""

    def __init__(self, reader: RunReader, listing: Listing, map_items: Map) -> None:
        self.reader, self._listing, self._map = reader, listing, map_items
        self._spec = reader.spec

    def find(self, wanted: Wanted, spans: Spans) -> pa.Table:
        """The rows of `wanted` in these parts: sorted by key, one version of each."""
        cached, cold = [], []
        for fetch in self._fetches(self._pieces(wanted, spans)):
            if self.reader.has(fetch.run, fetch.groups):  # too little work for a thread
                cached.append(self._matching(fetch))
            else:
                cold.append(fetch)
        return self._merged(cached + self._map(self._matching, cold))

    def in_memory(self, key: int | str) -> list[Place] | None:
        """Where the rows of one key are in memory; None if a request may find more."""
        if not self._listing.listed:
            return None
        wanted = Wanted.of([key], self._spec)
        found = []
        pieces = self._pieces_in_memory(wanted, self._listing.view().spans)
        if pieces is None:
            return None
        for run, section, passing in pieces:
            index = self.reader.cached_index(run, section)
            if index is None:
                return None
            if not passing.passing(index.filter).values:
                continue
            for group in index.groups(wanted):
                if self._listing.quarantine.holds(run.key, group):
                    continue
                block = self.reader.cached_block(run, group)
                if block is None:
                    return None
                if place := block.place(key):
                    found.append(Place(block, *place))
        return found

    def rows_at(self, found: Iterable[Place]) -> pa.Table:
        """The rows at these places."""
        return self._merged([block.rows.slice(start, end - start) for block, start, end in found])

    def index(self, piece: Piece) -> RunIndex | None:
        """The index of a piece; None if its part is damaged, which is put into quarantine."""
        run, section, _ = piece
        try:
            return read_twice(lambda: self.reader.index(run, section), Damaged)
        except Damaged as error:
            self._listing.put_into_quarantine(run, error.message)
            return None

    def blocks(self, fetch: Fetch) -> list[Block]:
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
                self._listing.put_into_quarantine(fetch.run, reason, group, fetch.index)
        return blocks

    def _pieces(self, wanted: Wanted, spans: Spans) -> Iterator[Piece]:
        """The parts and sections that may have any of `wanted`, as far as is known already."""
        for run in self.with_sections(spans.holding(wanted)):
            yield from _pieces_of(run, wanted)

    def _pieces_in_memory(self, wanted: Wanted, spans: Spans) -> list[Piece] | None:
        """As `_pieces`; None if that needs a request."""
        found: list[Piece] = []
        for run in spans.holding(wanted):
            known = self.reader.cached_with_sections(run)
            if known is None:
                return None
            found += _pieces_of(known, wanted)
        return found

    def with_sections(self, runs: Iterable[RunInfo]) -> Iterator[RunInfo]:
        """These parts with their sections. What is found damaged is put into quarantine."""
        runs = iter(runs)
        while some := list(itertools.islice(runs, _TOGETHER)):
            cold = {
                run.sections_in: run for run in some if not self.reader.cached_with_sections(run)
            }
            if len(cold) > 1:  # one of each section file, at once: others find theirs in it
                self._map(self._with_sections, [*cold.values()])
            yield from filter(None, map(self._with_sections, some))

    def _with_sections(self, run: RunInfo) -> RunInfo | None:
        """A part with its sections; None if it is damaged, which is put into quarantine."""
        try:
            return self.reader.with_sections(run)
        except Damaged as error:
            self._listing.put_into_quarantine(run, error.message)
            return None

    def _fetches(self, pieces: Iterable[Piece]) -> Iterator[Fetch]:
        """What to read of these pieces. Indexes that are not in the cache are read together."""
        pieces = iter(pieces)
        while some := list(itertools.islice(pieces, _TOGETHER)):
            cold = not all(self.reader.has_index(piece.run, piece.section) for piece in some)
            indexes = self._map(self.index, some) if cold else map(self.index, some)
            for piece, index in zip(some, indexes, strict=True):
                if index is not None:
                    yield from self._fetches_of(piece, index)

    def _fetches_of(self, piece: Piece, index: RunIndex) -> Iterator[Fetch]:
        run, wanted = piece.run, piece.wanted.passing(index.filter)
        groups = [
            group
            for group in index.groups(wanted)
            if not self._listing.quarantine.holds(run.key, group)
        ]
        # A filter takes up to 192 KB, which nobody needs while the row groups are read.
        held = replace(index, filter=None) if index.filter else index
        for adjacent in adjacent_groups(index, groups):
            yield Fetch(run, held, adjacent, index.within(adjacent, wanted).values)

    def _matching(self, fetch: Fetch) -> pa.Table:
        pieces = [block.holding(fetch.values) for block in self.blocks(fetch)]
        # Joining even one table takes 0.1 ms: Arrow looks at every column.
        return pieces[0] if len(pieces) == 1 else pa.concat_tables([self._spec.no_rows, *pieces])

    def _merged(self, matches: Sequence[pa.Table]) -> pa.Table:
        found = [rows for rows in matches if rows.num_rows]
        if len(found) < 2:  # rows of one run are sorted, and one version of each
            return found[0] if found else self._spec.no_rows
        return sort_unique(pa.concat_tables(found), self._spec)


def _pieces_of(run: RunInfo, wanted: Wanted) -> Iterator[Piece]:
    passing = wanted.passing(run.filter)
    if run.sections is None:
        if passing.values:
            yield Piece(run, None, passing)
        return
    for number, here in run.sections.holding(passing):
        yield Piece(run, number, here)
