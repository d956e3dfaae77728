"""Rows of a table by ranges of its leading key, an integer; chunk by chunk, however many."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stampede.errors import NotFound, StoreDown
from stampede.store.parquet.range_file import ChangedObject
from stampede.store.runs.bloom_filters import Wanted
from stampede.store.runs.footer import RunIndex
from stampede.store.runs.merge import sort_unique
from stampede.store.runs.reader import adjacent_groups
from stampede.store.runs.run import RunInfo
from stampede.store.tables.row_finder import Fetch, Piece
from stampede.store.tables.table import Table

CHUNK_ROWS = 100_000
"""Rows of the row groups that are read together, unless one range of keys has more: 15 MB."""
_TRIES = 5
_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class Ranges(NamedTuple):
    """Half-open ranges of keys, ascending and disjoint: arrays of shape (n,), int64."""

    starts: np.ndarray
    ends: np.ndarray

    def overlap(self, firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
        """Whether each of the intervals ``[firsts[i], lasts[i]]`` has a key of these ranges."""
        number = self.ends.searchsorted(firsts, "right")
        inside = number < len(self.ends)
        inside[inside] = self.starts[number[inside]] <= lasts[inside]
        return inside

    def between(self, start: int, end: int) -> "Ranges":
        """What of these ranges lies in ``[start, end)``."""
        kept = (self.ends > start) & (self.starts < end)
        return Ranges(self.starts[kept].clip(min=start), self.ends[kept].clip(max=end))


def rows_in(table: Table, ranges: Ranges) -> Iterator[pa.Table]:
    """All rows whose leading key lies in `ranges`, by key, one version of each; in chunks.

    Reads the runs of the last `Table.refresh`, or newer ones. What is damaged is left out, and
    `lacking` names it. Raises `StoreDown`.
    """
    if not len(ranges.starts):
        return
    start, end, tries = int(ranges.starts[0]), int(ranges.ends[-1]), 0
    while start < end:
        try:
            view, faults = table.listing.view(), table.listing.faults_found
            groups = _groups(table, ranges.between(start, end))
            for stop in [*_cuts(groups, start), end]:
                rows = _rows(table, groups, ranges.between(start, stop))
                # Of a part found damaged on the way the inputs may be there still: read them.
                found = table.listing.faults_found != faults
                if found and table.listing.view().parts != view.parts:
                    break
                start = stop
                if rows.num_rows:
                    yield rows
        except (NotFound, ChangedObject):
            tries += 1
            if tries == _TRIES:
                name = table.spec.name
                raise StoreDown(f"runs of {name} vanish faster than they can be read") from None
            table.refresh()


def lacking(table: Table, ranges: Ranges) -> Mapping[str, str]:
    """Objects that may hold rows of `ranges`, but cannot be read: key and reason of each."""
    return {
        key: reason
        for key, reason, first, last in table.listing.view().gaps
        if ranges.overlap(
            np.array([_LEAST if first is None else first]),
            np.array([_GREATEST if last is None else last]),
        ).any()
    }


def damaged_between(table: Table, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Whether rows of each range of keys ``[starts[i], ends[i])`` may be there but not readable."""
    found: np.ndarray = np.zeros(len(starts), bool)
    for _, _, first, last in table.listing.view().gaps:
        least = np.int64(_LEAST if first is None else first)
        greatest = np.int64(_GREATEST if last is None else last)
        found |= (ends > least) & (starts <= greatest)
    return found


class _Groups(NamedTuple):
    """Row groups: parts with an index of some of their row groups, and arrays of all of these."""

    indexes: list[tuple[RunInfo, RunIndex]]
    firsts: np.ndarray
    rows: np.ndarray


def _groups(table: Table, ranges: Ranges) -> _Groups:
    """The row groups that may have rows in `ranges`."""
    pieces = list(_pieces(table, ranges))
    cold = not all(table.reader.has_index(piece.run, piece.section) for piece in pieces)
    read = table.finder.index
    indexes = table.map(read, pieces) if cold else [read(piece) for piece in pieces]
    # Of a section that is damaged the index of the whole part is read, perhaps several times.
    found = {
        (piece.run.key, index.first, len(index.rows)): (piece.run, index)
        for piece, index in zip(pieces, indexes, strict=True)
        if index is not None
    }
    firsts, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for _, index in found.values():
        chosen = ranges.overlap(index.firsts, index.lasts)
        firsts.append(index.firsts[chosen])
        rows.append(index.rows[chosen])
    return _Groups([*found.values()], np.concatenate(firsts), np.concatenate(rows))


def _pieces(table: Table, ranges: Ranges) -> Iterator[Piece]:
    """The parts and sections that may have rows in `ranges`."""
    wanted = Wanted.of([], table.spec)
    runs = [
        run
        for run in table.runs()
        if run.rows and ranges.overlap(np.array([run.first]), np.array([run.last])).any()
    ]
    for run in table.finder.with_sections(runs):
        if run.sections is None:
            yield Piece(run, None, wanted)
            continue
        for number in np.flatnonzero(ranges.overlap(*run.sections.ends)).tolist():
            yield Piece(run, number, wanted)


def _cuts(groups: _Groups, start: int) -> list[int]:
    """Keys above `start`, ascending, between which about `CHUNK_ROWS` rows lie."""
    order = np.argsort(groups.firsts)
    chunk = np.cumsum(groups.rows[order]) // CHUNK_ROWS
    cuts = np.unique(groups.firsts[order][1:][np.diff(chunk) > 0])
    cut_keys: list[int] = cuts[cuts > start].tolist()
    return cut_keys


def _rows(table: Table, groups: _Groups, ranges: Ranges) -> pa.Table:
    fetches = []
    for run, index in groups.indexes:
        numbers = np.flatnonzero(ranges.overlap(index.firsts, index.lasts)) + index.first
        kept = [
            number
            for number in numbers.tolist()
            if not table.listing.quarantine.holds(run.key, number)
        ]
        fetches += [Fetch(run, index, some, ()) for some in adjacent_groups(index, kept)]
    cold = not all(table.reader.has(fetch.run, fetch.groups) for fetch in fetches)
    read = table.finder.blocks
    blocks = table.map(read, fetches) if cold else [read(each) for each in fetches]
    found = [table.spec.no_rows]
    for block in (block for some in blocks for block in some):
        keys = np.asarray(block.keys)
        inside = ranges.overlap(keys, keys)
        if inside.all():
            found.append(block.rows)
        elif inside.any():
            counts = np.diff(block.ends, prepend=0)
            found.append(block.rows.filter(pa.array(np.repeat(inside, counts))))
    return sort_unique(pa.concat_tables(found), table.spec)
