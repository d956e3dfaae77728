"""Parses the footer of a part of a run, and its index. docs/store.md describes the format."""

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stampede.errors import Damaged
from stampede.store.objects.object_store import ObjectInfo
from stampede.store.offsets.coverage import COVERAGE, Coverage
from stampede.store.parquet.checksums import (
    BODY,
    PARQUET_ERRORS,
    FileMetaData,
    check_format,
    metadata_of,
    parse_verified,
)
from stampede.store.parquet.partial_footers import Descriptions
from stampede.store.runs.bloom_filters import Filter, Wanted
from stampede.store.runs.index_sections import Sections, open_section
from stampede.store.runs.keys import between, bounds, overlapping
from stampede.store.runs.packed_coverage import Block, UnreadCoverage
from stampede.store.runs.run import RunInfo
from stampede.store.runs.run_name import RunName
from stampede.store.runs.schema import TableSpec

MAGIC = 4  # bytes at the beginning of a Parquet file
_TABLE, _CUTS, _PART = b"stampede.table", b"stampede.cuts", b"stampede.part"
FILTER, SECTIONS = b"stampede.filter", b"stampede.sections"
_KEYS = (b"stampede.inputs", b"stampede.rows", b"stampede.first", b"stampede.last")


@dataclass(frozen=True, eq=False)
class RunIndex:
    """Row groups of one part, all of them or those of a section: arrays of shape (row groups,).

    `first` is the number of the first of them in the part. `firsts` and `lasts` bound the leading
    keys, as `keys.bounds` returns them: they are the least and the greatest key, unless these are
    too long; `starts` and `ends` are byte offsets in the file; `rows` are numbers of rows;
    `descriptions` is for decoding. `filter` is that of the keys of a section.
    """

    firsts: np.ndarray
    lasts: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    rows: np.ndarray
    descriptions: Descriptions
    first: int = 0
    filter: Filter | None = None

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        arrays = self.firsts.nbytes + self.lasts.nbytes + 3 * self.rows.nbytes
        bits = len(self.filter.data) if self.filter else 0
        return arrays + self.descriptions.nbytes + bits

    @property
    def numbers(self) -> range:
        """The numbers of these row groups in the part."""
        return range(self.first, self.first + len(self.rows))

    def extent(self, group: int) -> tuple[int, int]:
        """The bytes of the file at which a row group starts and ends."""
        place = self._place(group)
        return int(self.starts[place]), int(self.ends[place])

    def rows_of(self, group: int) -> int:
        """The number of rows of a row group."""
        return int(self.rows[self._place(group)])

    def metadata_of(self, group: int) -> tuple[FileMetaData, int]:
        """File metadata that describes a row group, and the group's number in that metadata."""
        return self.descriptions.of(self._place(group))

    def within(self, groups: Sequence[int], wanted: Wanted) -> Wanted:
        """Those of `wanted` that the row groups from the first to the last of `groups` may hold."""
        first, last = self.firsts[self._place(groups[0])], self.lasts[self._place(groups[-1])]
        return wanted.part(between(wanted.places, first, last))

    def ends_of(self, group: int) -> tuple[int | str, int | str | None]:
        """Leading keys between which all rows of a row group lie; None is without bound."""
        place = self._place(group)
        first, last = self.firsts[place].item(), self.lasts[place].item()
        if not isinstance(first, bytes):
            return first, last
        # numpy drops NULs at the end, and a bound of a very long key is no string.
        return first.decode(), None if last.endswith(b"\xff") else last.decode() + "\0"

    def groups(self, wanted: Wanted) -> Sequence[int]:
        """Numbers of the row groups that may hold any of these keys."""
        if (key := wanted.only) is None:
            numbers: list[int] = overlapping(self.firsts, self.lasts, wanted.places).tolist()
            return numbers if not self.first else [number + self.first for number in numbers]
        # They are in the order of keys: a search for the first and the last takes half the time.
        begin, end = self.lasts.searchsorted(key, "left"), self.firsts.searchsorted(key, "right")
        return range(self.first + int(begin), self.first + int(end))

    def spans(self, group: int, ends: np.ndarray) -> bool:
        """Whether `groups` names a row group for every key between `ends`, which are `sortable`."""
        place = self._place(group)
        return bool(self.firsts[place] <= ends[0] and ends[1] <= self.lasts[place])

    def _place(self, group: int) -> int:
        """Where a row group is in the arrays. numpy would take -1 for the last one."""
        if group not in self.numbers:
            raise IndexError(f"row group {group} is not one of {self.numbers}")
        return group - self.first


def parse_footer(metadata: FileMetaData, info: ObjectInfo, spec: TableSpec) -> RunInfo:
    """The `RunInfo` in a part's footer. Offsets in a block are not read: `RunReader.footer` does.

    Raises `Damaged` if the object is not a run of this table, or not the one that it is named.
    """
    name = RunName.parse(info.key)
    if name is None:
        raise Damaged(f"{info.key} does not have the name of a run")
    pairs = metadata.metadata or {}
    check_format(info.key, pairs)
    try:
        inputs, rows, first, last = (json.loads(pairs[key]) for key in _KEYS)
        block = Block.parse(pairs[COVERAGE])
        coverage = UnreadCoverage(block) if block else Coverage.from_json(pairs[COVERAGE])
        body = pairs[BODY.encode()].decode() if BODY.encode() in pairs else None
        bits = Filter(b64decode(json.loads(pairs[FILTER]))) if FILTER in pairs else None
        sections = _sections(pairs, last, spec)
        run = RunInfo(
            name, info, tuple(map(str, inputs)), coverage, rows, first, last, body, bits, sections
        )
        check_keys(run, spec)
        named = _as_named(pairs, run, spec)
    except (*PARQUET_ERRORS, AttributeError, RecursionError):
        raise Damaged(f"{info.key} does not have the footer of a run") from None
    if not named:
        raise Damaged(f"{info.key} does not hold the run of that name")
    return run


def check_keys(run: RunInfo, spec: TableSpec) -> None:
    """Hold what is said of the keys of a part to itself, so that no lookup leaves out its rows.

    Raises one of `PARQUET_ERRORS`.
    """
    pa.array([run.first, run.last], spec.schema.field(spec.leading).type)
    check_ends(run)


def check_ends(run: RunInfo) -> None:
    """As `check_keys`, of keys that have the right type."""
    first: Any = run.first
    last: Any = run.last
    if run.rows < 0 or bool(run.rows) != (first is not None and last is not None):
        raise ValueError("it has rows without keys, or keys without rows")
    if run.rows and last < first:
        raise ValueError("its last key is less than its first")
    if run.sections is not None and first is not None:
        run.sections.check(first)


def _as_named(pairs: Mapping[bytes, bytes], run: RunInfo, spec: TableSpec) -> bool:
    """Whether a footer is that of the run's key, as far as it says."""
    name = run.name
    if json.loads(pairs[b"stampede.level"]) != name.level or json.loads(pairs[_TABLE]) != spec.name:
        return False
    if _CUTS not in pairs:
        return True
    cuts, (part, parts) = json.loads(pairs[_CUTS]), json.loads(pairs[_PART])
    return name == RunName.merged(name.level, run.inputs, cuts, part, parts)


def _sections(
    pairs: Mapping[bytes, bytes], last: int | str | None, spec: TableSpec
) -> Sections | None:
    if SECTIONS not in pairs or last is None:
        return None
    return Sections(pairs[SECTIONS].decode(), last, spec)


def _block_length(pairs: Mapping[bytes, bytes]) -> int:
    """Bytes between the sections and the footer. Raises one of `PARQUET_ERRORS`."""
    block = Block.parse(pairs[COVERAGE])
    return block.length if block else 0


def parse_index(run: RunInfo, footer: bytes, spec: TableSpec) -> RunIndex:
    """Where a part's row groups lie and which leading keys they hold.

    Raises `Damaged` if the footer does not have its checksums or contradicts itself, and one of
    `PARQUET_ERRORS` if it is not Parquet.
    """
    metadata = parse_verified(run.key, footer)
    groups = _row_groups(metadata)
    firsts, lasts = groups.firsts, groups.lasts
    if groups.rows.sum() != run.rows or (firsts and not _agree(run, firsts[0], lasts[-1])):
        raise Damaged(f"{run.key} does not have the rows that its footer says")
    # Row groups follow each other from the magic number to the sections or the footer.
    # The footer says where these are, since an earlier checkpoint does not.
    sections = _sections(metadata.metadata, run.last, spec)
    between = sections.length if sections is not None else 0
    between += _block_length(metadata.metadata)
    end = run.object.size - 8 - len(footer) - between
    if not np.array_equal(np.append(groups.starts, end), np.append(MAGIC, groups.ends)):
        raise Damaged(f"{run.key} is cut short, or its footer is that of another file")
    return groups.as_index(Descriptions(footer, metadata), run.first, run.last, spec)


def parse_section(run: RunInfo, number: int, data: bytes, spec: TableSpec) -> RunIndex:
    """The index of a section from its bytes.

    Raises `Damaged` if they do not have their checksum, and one of `PARQUET_ERRORS` if they are
    none.
    """
    if run.sections is None:
        raise ValueError(f"{run.key} has no sections")
    section, later = run.sections.listed[number], run.sections.listed[number + 1 :]
    footer, bits = open_section(run.key, section, data)
    metadata = metadata_of(footer)
    groups = _row_groups(metadata)
    if groups.firsts[0] not in (None, section.key) or (
        section.group + len(groups.rows) != later[0].group
        if later
        else groups.lasts[-1] not in (None, run.last)
    ):
        raise Damaged(f"{run.key}: a section does not describe the row groups that are listed")
    index = groups.as_index(
        Descriptions(footer, metadata), section.key, run.sections.last_key(number), spec
    )
    return replace(index, first=section.group, filter=bits)


class _RowGroups(NamedTuple):
    firsts: list[int | str | None]  # None is unknown: Arrow drops the statistics of long keys
    lasts: list[int | str | None]
    starts: np.ndarray
    ends: np.ndarray
    rows: np.ndarray

    def as_index(
        self,
        descriptions: Descriptions,
        first: int | str | None,
        last: int | str | None,
        spec: TableSpec,
    ) -> RunIndex:
        """An index of these row groups, whose keys lie between `first` and `last`."""
        _fill_gaps(self.firsts, self.lasts, first, last)
        firsts, lasts = bounds(self.firsts, spec), bounds(self.lasts, spec, upper=True)
        return RunIndex(firsts, lasts, self.starts, self.ends, self.rows, descriptions)


def _row_groups(metadata: FileMetaData) -> _RowGroups:
    firsts: list[int | str | None] = []
    lasts: list[int | str | None] = []
    extents = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        head, tail = group.column(0), group.column(metadata.num_columns - 1)
        statistics = head.statistics
        known = statistics is not None and statistics.has_min_max
        firsts.append(statistics.min if known else None)
        lasts.append(statistics.max if known else None)
        start = head.dictionary_page_offset or head.data_page_offset
        end = (tail.dictionary_page_offset or tail.data_page_offset) + tail.total_compressed_size
        extents.append((start, end, group.num_rows))
    return _RowGroups(firsts, lasts, *np.array(extents, np.int64).reshape(-1, 3).T)


def _agree(run: RunInfo, first: int | str | None, last: int | str | None) -> bool:
    """Whether the ends of the row groups, if known, are those of the run."""
    return first in (None, run.first) and last in (None, run.last)


def _fill_gaps(
    firsts: list[int | str | None],
    lasts: list[int | str | None],
    least: int | str | None,
    greatest: int | str | None,
) -> None:
    """Bound row groups without statistics by the known keys of others."""
    before = least  # the greatest key known up to here: a bound found below is none
    for number, (first, last) in enumerate(zip(firsts, lasts, strict=True)):
        if first is None:
            firsts[number] = before
        if last is None:
            later = (first for first in firsts[number + 1 :] if first is not None)
            lasts[number] = next(later, greatest)
        else:
            before = last


def with_columns(
    rows: pa.Table, spec: TableSpec, key: str, names: Sequence[str] | None = None
) -> pa.Table:
    """`rows` of a part with the columns of its table, or with these.

    A column that the table did not have when the part was written is null. Raises `Damaged` for
    other differences.
    """
    plain = spec.schema.remove_metadata()
    if names is not None:
        plain = pa.schema([plain.field(name) for name in names])
    if rows.schema.equals(plain):  # without what the file says of its fields
        return pa.Table.from_arrays(rows.columns, schema=plain)
    columns = []
    for field in plain:
        here = rows.schema.get_field_index(field.name)
        if here >= 0 and rows.schema.field(here).type == field.type:
            columns.append(rows.column(here))
        elif here < 0 and field.nullable:
            columns.append(pa.nulls(rows.num_rows, field.type))
        else:
            raise Damaged(f"{key} does not have the columns of {spec.name}: {field.name}")
    return pa.table(columns, plain)
