"""Reads runs: footers and row groups by ranged GETs, with a cache in memory."""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from stampede.errors import Damaged
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.objects.lru_cache import Cache
from stampede.store.objects.object_store import ObjectInfo, Objects, read_twice
from stampede.store.parquet.checksums import PARQUET_ERRORS, open_verified, parse_verified
from stampede.store.parquet.object_footer import footer_bytes, tail_of
from stampede.store.parquet.partial_footers import run_metadata
from stampede.store.parquet.range_file import ChangedObject, MemoryRange
from stampede.store.runs.footer import (
    RunIndex,
    parse_footer,
    parse_index,
    parse_section,
    with_columns,
)
from stampede.store.runs.packed_coverage import PackedCoverage, UnreadCoverage, read_block
from stampede.store.runs.row_values import COLUMN_BYTES, RowValues
from stampede.store.runs.run import RunInfo
from stampede.store.runs.schema import TableSpec
from stampede.store.runs.section_files import SectionFiles
from stampede.telemetry.logs import get_logger

log = get_logger()

MIB = 1 << 20
# Most bytes of adjacent row groups that one GET fetches.
GET_BYTES = 4 * MIB
# Run metadata fits in the footer's last 32 KB. For runs up to 38,000 rows, ten of each object, that
# is the whole footer, so lookups need no extra request.
TAIL_BYTES = 32 << 10
_SECTIONS_SIZE = 5
"""Memory of parsed sections, in the lengths of their text."""


class RunReader:
    """Reads the runs of one table.

    Parameters
    ----------
    cache_bytes
        Most bytes of row groups and indexes in memory, of indexes three quarters; 0 keeps nothing.
        A quarter as much besides is for section files.
    """

    def __init__(self, objects: Objects, spec: TableSpec, cache_bytes: int) -> None:
        self.objects = objects
        self.spec = spec
        self._cache_bytes = cache_bytes
        # Apart, so that rows do not drive out indexes: to make these again costs requests, and
        # leaves holes in glibc's memory, 200 MB after a thousand look-ups. Rows get what is left.
        self.indexes = Cache(cache_bytes * 3 // 4)
        self.cache = Cache(cache_bytes)
        self._section_files = SectionFiles(objects, spec, cache_bytes // 4)
        # By digest, as long as a part has them: so each block is read once.
        self._coverages: WeakValueDictionary[str, PackedCoverage] = WeakValueDictionary()

    def footer(self, info: ObjectInfo) -> RunInfo:
        """A part's metadata, from the end of the object, and its offsets, wherever they are.

        Raises `NotFound`, `StoreDown`, `Damaged`.
        """
        tail, footer_size = tail_of(self.objects, info, min(info.size, TAIL_BYTES))
        with _parquet(info.key):
            metadata = (
                None if footer_size <= len(tail) else run_metadata(info.key, tail, self.spec.schema)
            )
            if metadata is not None:
                run = parse_footer(metadata, info, self.spec)
            else:
                footer = tail[-footer_size:] if footer_size <= len(tail) else self._footer(info)
                run = parse_footer(parse_verified(info.key, footer), info, self.spec)
                self._cache_index(run, footer)
        return self._with_coverage(run, tail, footer_size)

    def index(self, run: RunInfo, section: int | None = None) -> RunIndex:
        """The part's row groups, or those of a section; all of them if the section is damaged.

        Raises `NotFound`, `StoreDown`, `Damaged`.
        """
        if index := self.cached_index(run, section):
            return index
        if section is not None:
            return self._cache_section(run, section)
        with _parquet(run.key):
            return self._cache_index(run, self._footer(run.object))

    def cached_index(self, run: RunInfo, section: int | None = None) -> RunIndex | None:
        """What `index` returns, from the cache; None if it is not there."""
        found: RunIndex | None = self.indexes.get(self._index_name(run, section))
        return found

    def with_sections(self, run: RunInfo) -> RunInfo:
        """A part with its sections: from its section file if a start left them unread.

        Of its footer if that file is gone or damaged. Raises `NotFound`, `StoreDown`, `Damaged`.
        """
        if found := self.cached_with_sections(run):
            return found
        sections = self._section_files.of(run)
        if sections is None:
            footer = read_twice(lambda: self.footer(run.object), Damaged)
            sections = footer.sections
        found = replace(run, sections=sections, sections_in=None)
        size = _SECTIONS_SIZE * len(sections.text) if sections else 0
        self.indexes.put(_cached("sections", run), found, size)
        return found

    def cached_with_sections(self, run: RunInfo) -> RunInfo | None:
        """What `with_sections` returns, from memory; None if it is not there."""
        if run.sections_in is None:
            return run
        found: RunInfo | None = self.indexes.get(_cached("sections", run))
        return found

    def cached_block(self, run: RunInfo, group: int) -> "Block | None":
        """The rows of a row group, from the cache; None if they are not there."""
        found: Block | None = self.cache.get(_cached(group, run))
        return found

    def has_index(self, run: RunInfo, section: int | None = None) -> bool:
        """Whether the cache has the part's index, or that of a section."""
        return self.indexes.holds(self._index_name(run, section))

    def open(self, run: RunInfo) -> "RunFile":
        """A part to read row groups from. Raises `NotFound`, `StoreDown`, `Damaged`."""
        return RunFile(self.objects, run, self.index(run), self.spec)

    def read(self, run: RunInfo, groups: Sequence[int], index: RunIndex) -> "list[Block]":
        """The rows of each of `groups`, ascending, from the cache if they are there.

        `index` describes all of them. Raises `NotFound`, `StoreDown`, `Damaged`.
        """
        cached = {group: self.cache.get(_cached(group, run)) for group in groups}
        if missing := [group for group, rows in cached.items() if rows is None]:
            file = RunFile(self.objects, run, index, self.spec)
            for group, block in file.fetch(missing):
                # Cache decoded rows, though they take four times the memory: decoding at each
                # lookup took half the time of `read` (`stampede bench read`).
                with _parquet(run.key):
                    rows = Block.of(file.decode(group, block), self.spec.leading)
                cached[group] = rows
                self.cache.put(_cached(group, run), rows, rows.nbytes)
        return list(cached.values())

    def has(self, run: RunInfo, groups: Sequence[int]) -> bool:
        """Whether the cache has all of `groups`."""
        return all(self.cache.holds(_cached(group, run)) for group in groups)

    def _with_coverage(self, run: RunInfo, tail: bytes, footer_size: int) -> RunInfo:
        """A part with its offsets, if a block has them; `tail` ends with its footer."""
        if not isinstance(run.coverage, UnreadCoverage):
            return run
        block = run.coverage.block
        coverage = self._coverages.get(block.digest)  # all parts of a run have the same
        if coverage is None:
            begin = len(tail) - footer_size - block.length
            data = tail[begin:][: block.length] if begin >= 0 else b""
            start = run.object.size - 8 - footer_size - block.length
            if not data and start > 0:
                data = self.objects.get(run.key, start, block.length)
            coverage = read_block(run.key, block, data)
            self._coverages[block.digest] = coverage
        return replace(run, coverage=coverage)

    def _index_name(self, run: RunInfo, section: int | None) -> tuple[Any, ...]:
        """The cache's name of the index of a part, or of a section."""
        whole = _cached("index", run)
        if section is None or run.sections is None:
            return whole
        # The whole index, if a start read it, says as much as that of a section without a filter.
        if not run.sections.listed[section].filter_length and self.indexes.holds(whole):
            return whole
        return _cached("index", run, section)

    def _cache_index(self, run: RunInfo, footer: bytes) -> RunIndex:
        index = parse_index(run, footer, self.spec)
        self._keep(run, None, index)
        return index

    def _cache_section(self, run: RunInfo, number: int) -> RunIndex:
        try:
            index = read_twice(lambda: self._section(run, number), Damaged)
        except Damaged as error:  # no row is lost: the footer describes all row groups
            log.error("damaged", key=run.key, why=error.message)
            index = self.index(run)
        self._keep(run, number, index)
        return index

    def _keep(self, run: RunInfo, section: int | None, index: RunIndex) -> None:
        self.indexes.put(_cached("index", run, section), index, index.nbytes)
        # An index that another thread is putting counts before it drives out others.
        self.cache.limit = max(0, self._cache_bytes - self.indexes.bytes)

    def _section(self, run: RunInfo, number: int) -> RunIndex:
        """A section of a part, by one GET."""
        if run.sections is None:
            raise ValueError(f"{run.key} has no sections")
        place = run.sections.listed[number]
        data = self.objects.get(run.key, place.start, place.length)
        with _parquet(run.key):
            return parse_section(run, number, data, self.spec)

    def _footer(self, info: ObjectInfo) -> bytes:
        """A footer's bytes, by one GET, or by two if it is longer than usual."""
        return footer_bytes(self.objects, info, (40 << 10) + info.size // 64)


@dataclass(frozen=True, eq=False)
class Block:
    """The rows of a row group. Those of leading key `keys[i]` end before row `ends[i]`.

    No two blocks of a process have the same `number`.
    """

    rows: pa.Table
    keys: Sequence[Any]
    ends: np.ndarray
    number: int = field(default_factory=itertools.count().__next__)

    @cached_property
    def values(self) -> RowValues:
        """The rows as Python values."""
        return RowValues(self.rows)

    @classmethod
    def of(cls, rows: pa.Table, leading: str) -> "Block":
        """A block of rows that are sorted by their leading key."""
        column = rows[leading].combine_chunks()
        if pa.types.is_integer(column.type):
            # By numpy: the first cutout of a process needs no function of `pyarrow.compute`.
            numbers = column.to_numpy()
            last_of_key = np.append(numbers[1:] != numbers[:-1], True)[: len(numbers)]
            ends = np.flatnonzero(last_of_key).astype(np.int32) + np.int32(1)
            return cls(rows, numbers[ends - 1], ends)
        runs = pc.run_end_encode(column)
        return cls(rows, runs.values.to_pylist(), runs.run_ends.to_numpy())

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        views = COLUMN_BYTES * self.rows.num_columns
        taken: int = self.rows.nbytes + self.ends.nbytes + 100 * len(self.keys) + views
        return taken

    def place(self, key: int | str) -> tuple[int, int] | None:
        """Where the rows of one key are: the first, and the end; None if there are none."""
        keys = self.keys
        # `bisect` would make an object of each number that it sees.
        at = int(keys.searchsorted(key)) if isinstance(keys, np.ndarray) else bisect_left(keys, key)
        if at == len(keys) or keys[at] != key:
            return None
        return int(self.ends[at - 1]) if at else 0, int(self.ends[at])

    def holding(self, wanted: Sequence[Any]) -> pa.Table:
        """The rows of these keys, ascending; not copied if they lie side by side."""
        keys, last = self.keys, len(self.keys) - 1
        wanted = wanted[bisect_left(wanted, keys[0]) : bisect_right(wanted, keys[last])]
        if isinstance(keys, np.ndarray):
            at = keys.searchsorted(wanted)
            at = at[keys[at] == wanted]
        else:
            places = (bisect_left(keys, key) for key in wanted)
            at = np.array([n for n, key in zip(places, wanted, strict=True) if keys[n] == key], int)
        if not len(at):
            return self.rows.slice(0, 0)
        ends = self.ends[at]
        starts = np.where(at > 0, self.ends[at - 1], 0)
        if at[-1] - at[0] == len(at) - 1:
            return self.rows.slice(int(starts[0]), int(ends[-1] - starts[0]))
        counts = ends - starts
        shift = starts - (np.cumsum(counts) - counts)
        return self.rows.take(pa.array(np.repeat(shift, counts) + np.arange(counts.sum())))


class Place(NamedTuple):
    """Rows of one key in a block: the first, and the end."""

    block: Block
    start: int
    end: int


class RunFile:
    """One part of a run and an `index` of its row groups, or of some."""

    def __init__(self, objects: Objects, run: RunInfo, index: RunIndex, spec: TableSpec) -> None:
        self.run = run
        self._spec = spec
        self._objects = objects
        self.index = index

    @property
    def numbers(self) -> range:
        """The numbers of its row groups."""
        return self.index.numbers

    def read(self, groups: Sequence[int], columns: Sequence[str] | None = None) -> list[pa.Table]:
        """The rows of each of `groups`, ascending, or these columns alone.

        Raises `NotFound`, `StoreDown`, `Damaged`.
        """
        return [self.decode(group, block, columns) for group, block in self.fetch(groups)]

    def fetch(self, groups: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Number and bytes of each of `groups`, ascending; one GET fetches adjacent ones."""
        for adjacent in adjacent_groups(self.index, groups):
            start, end = self.index.extent(adjacent[0])[0], self.index.extent(adjacent[-1])[1]
            data = self._objects.get(self.run.key, start, end - start)
            if len(data) != end - start:
                raise ChangedObject(f"{self.run.key} is shorter than its footer says")
            for group in adjacent:
                first, last = self.index.extent(group)
                yield group, data[first - start : last - start]

    def decode(self, group: int, block: bytes, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of a row group from its bytes, or these columns alone. Raises `Damaged`."""
        source = MemoryRange(block, self.index.extent(group)[0], self.run.object.size)
        metadata, number = self.index.metadata_of(group)
        with _parquet(self.run.key):
            file = open_verified(source, metadata)
            rows = file.read_row_group(number, columns, use_threads=False)
            if rows.num_rows != self.index.rows_of(group):
                raise Damaged(f"{self.run.key} does not have the rows that its footer says")
        return with_columns(rows, self._spec, self.run.key, columns)


def _cached(what: int | str, run: RunInfo, section: int | None = None) -> tuple[Any, ...]:
    """The cache's name of a row group, or of an index, of a part. A repaired part is another."""
    return what, run.key, run.object.etag, section


@contextmanager
def _parquet(key: str) -> Iterator[None]:
    try:
        yield
    except PARQUET_ERRORS as error:
        raise Damaged(f"{key} is damaged: {error}") from None


def adjacent_groups(index: RunIndex, groups: Sequence[int]) -> list[list[int]]:
    """`groups`, ascending, split into lists that one GET each fetches: adjacent, not too large."""
    fetches: list[list[int]] = []
    for group in groups:
        if (
            fetches
            and fetches[-1][-1] == group - 1
            and index.extent(group)[1] - index.extent(fetches[-1][0])[0] <= GET_BYTES
        ):
            fetches[-1].append(group)
        else:
            fetches.append([group])
    return fetches
