"""Writes a part of a run, and parses its footer. docs/store.md describes the format."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stampede.errors import Damaged
from stampede.store.checked_parquet import (
    BODY,
    BODY_PLACEHOLDER,
    PARQUET_ERRORS,
    PLACEHOLDER,
    check_footer,
    check_format,
    seal,
)
from stampede.store.coverage import COVERAGE, Coverage
from stampede.store.footers import Descriptions, metadata_of
from stampede.store.keys import bounds, overlapping
from stampede.store.objects import ObjectInfo
from stampede.store.runs import RunInfo, RunName
from stampede.store.schema import TableSpec

MAGIC = 4  # bytes at the beginning of a Parquet file
# Rows per row group: what one lookup fetches and decodes, 60 to 140 KB in 0.2 ms.
GROUP_ROWS = 2000
_TABLE, _CUTS, _PART = b"stampede.table", b"stampede.cuts", b"stampede.part"
_KEYS = (b"stampede.inputs", b"stampede.rows", b"stampede.first", b"stampede.last")


@dataclass(frozen=True, eq=False)
class RunIndex:
    """The row groups of one part: all arrays of shape (row groups,).

    `firsts` and `lasts` bound the leading keys, as `keys.bounds` returns them: they are the least
    and the greatest key, unless these are too long;
    `starts` and `ends` are byte offsets in the file; `rows` are numbers of rows; `descriptions`
    is for decoding.
    """

    firsts: np.ndarray
    lasts: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    rows: np.ndarray
    descriptions: Descriptions

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        arrays = self.firsts.nbytes + self.lasts.nbytes + 3 * self.rows.nbytes
        return arrays + self.descriptions.nbytes

    def ends_of(self, group: int) -> tuple[int | str, int | str | None]:
        """Leading keys between which all rows of a row group lie; None is without bound."""
        first, last = self.firsts[group].item(), self.lasts[group].item()
        if not isinstance(first, bytes):
            return first, last
        # numpy drops NULs at the end, and a bound of a very long key is no string.
        return first.decode(), None if last.endswith(b"\xff") else last.decode() + "\0"

    def groups(self, wanted: np.ndarray) -> np.ndarray:
        """Numbers of the row groups that may hold any of `wanted`, which is sorted."""
        return overlapping(self.firsts, self.lasts, wanted)


class RunWriter:
    """Writes one part of a run into memory."""

    def __init__(self, spec: TableSpec) -> None:
        self.rows = 0
        self._ends: list[int | str] = []
        self._spec = spec
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._sink,
            spec.schema.remove_metadata(),
            version="2.6",
            compression="LZ4",
            # Numbers hardly repeat, and a dictionary would take -0.0 for 0.0.
            use_dictionary=[f.name for f in spec.schema if pa.types.is_string(f.type)],
            write_statistics=[spec.leading],
            store_schema=False,
            write_page_checksum=True,
        )

    def add(self, rows: pa.Table) -> None:
        """Append `rows`, which sort after all rows added before."""
        if rows.num_rows:
            self._writer.write_table(rows, row_group_size=GROUP_ROWS)
            self.rows += rows.num_rows
            leading = rows[self._spec.leading]
            self._ends = [*self._ends[:1], leading[0].as_py(), leading[-1].as_py()]

    def close(
        self,
        level: int,
        inputs: Sequence[str],
        coverage: Coverage,
        cuts: str | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> pa.Buffer:
        """Write the footer, and return the bytes of the file.

        `cuts` is the digest of the cuts of a merged run, and `part` the number of this part and
        that of all parts: a reader holds the part to its name by them.
        """
        metadata: dict[str, Any] = {
            "level": level,
            "table": self._spec.name,
            "inputs": list(inputs),
            "rows": self.rows,
            "first": self._ends[0] if self._ends else None,
            "last": self._ends[-1] if self._ends else None,
        }
        if cuts is not None:
            metadata |= {"cuts": cuts, "part": part}
        footer = {f"stampede.{name}": json.dumps(value) for name, value in metadata.items()}
        if level:
            footer |= BODY_PLACEHOLDER
        footer[COVERAGE.decode()] = coverage.to_json()
        self._writer.add_key_value_metadata(PLACEHOLDER | footer)
        self._writer.close()
        return seal(self._sink.getvalue())


def parse_footer(metadata: pq.FileMetaData, info: ObjectInfo, spec: TableSpec) -> RunInfo:
    """The `RunInfo` in a part's footer.

    Raises `Damaged` if the object is not a run of this table, or not the one that it is named.
    """
    name = RunName.parse(info.key)
    if name is None:
        raise Damaged(f"{info.key} does not have the name of a run")
    pairs = metadata.metadata or {}
    check_format(info.key, pairs)
    try:
        inputs, rows, first, last = (json.loads(pairs[key]) for key in _KEYS)
        coverage = Coverage.from_json(pairs[COVERAGE])
        body = pairs[BODY.encode()].decode() if BODY.encode() in pairs else None
        run = RunInfo(name, info, tuple(map(str, inputs)), coverage, rows, first, last, body)
        named = _as_named(pairs, run, spec)
    except (*PARQUET_ERRORS, AttributeError):
        raise Damaged(f"{info.key} does not have the footer of a run") from None
    if not named:
        raise Damaged(f"{info.key} does not hold the run of that name")
    return run


def _as_named(pairs: Mapping[bytes, bytes], run: RunInfo, spec: TableSpec) -> bool:
    """Whether a footer is that of the run's key, as far as it says."""
    name = run.name
    ends = pa.array([run.first, run.last], spec.schema.field(spec.leading).type)
    if bool(run.rows) != (ends.null_count == 0):
        return False
    if run.rows and not np.less_equal(*bounds([run.first, run.last], spec)):
        return False
    if json.loads(pairs[b"stampede.level"]) != name.level or json.loads(pairs[_TABLE]) != spec.name:
        return False
    if _CUTS not in pairs:
        return True
    cuts, (part, parts) = json.loads(pairs[_CUTS]), json.loads(pairs[_PART])
    return name == RunName.merged(name.level, run.inputs, cuts, part, parts)


def parse_index(run: RunInfo, footer: bytes, spec: TableSpec) -> RunIndex:
    """Where a part's row groups lie and which leading keys they hold.

    Raises `Damaged` if the footer does not have its checksums or contradicts itself, and one of
    `PARQUET_ERRORS` if it is not Parquet.
    """
    metadata = metadata_of(footer)
    check_footer(run.key, footer, metadata)
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
    starts, ends, rows = np.array(extents, np.int64).reshape(-1, 3).T
    if rows.sum() != run.rows or (firsts and not _agree(run, firsts[0], lasts[-1])):
        raise Damaged(f"{run.key} does not have the rows that its footer says")
    # Row groups follow each other from the magic number to the footer.
    here, there = np.append(starts, run.object.size - 8 - len(footer)), np.append(MAGIC, ends)
    if not np.array_equal(here, there):
        raise Damaged(f"{run.key} is cut short, or its footer is that of another file")
    _fill_gaps(firsts, lasts, run)
    return RunIndex(
        bounds(firsts, spec),
        bounds(lasts, spec, upper=True),
        starts,
        ends,
        rows,
        Descriptions(footer, metadata),
    )


def _agree(run: RunInfo, first: int | str | None, last: int | str | None) -> bool:
    """Whether the ends of the row groups, if known, are those of the run."""
    return first in (None, run.first) and last in (None, run.last)


def _fill_gaps(firsts: list[int | str | None], lasts: list[int | str | None], run: RunInfo) -> None:
    """Bound row groups without statistics by their neighbours: Arrow drops those of long keys."""
    for number, first in enumerate(firsts):
        if first is None:
            firsts[number] = lasts[number - 1] if number else run.first
        if lasts[number] is None:
            later = (first for first in firsts[number + 1 :] if first is not None)
            lasts[number] = next(later, run.last)


def with_columns(rows: pa.Table, spec: TableSpec, key: str) -> pa.Table:
    """`rows` of a part with the columns of its table.

    A column that the table did not have when the part was written is null. Raises `Damaged` for
    other differences.
    """
    if rows.schema.equals(spec.schema):
        return rows
    columns = []
    for field in spec.schema:
        here = rows.schema.get_field_index(field.name)
        if here >= 0 and rows.schema.field(here).type == field.type:
            columns.append(rows.column(here))
        elif here < 0 and field.nullable:
            columns.append(pa.nulls(rows.num_rows, field.type))
        else:
            raise Damaged(f"{key} does not have the columns of {spec.name}: {field.name}")
    return pa.table(columns, spec.schema.remove_metadata())
