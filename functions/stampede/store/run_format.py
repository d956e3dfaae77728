"""Writes a part of a run, and parses its footer. docs/store.md describes the format."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stampede.errors import Damaged
from stampede.store.checked_parquet import PLACEHOLDER, check_footer, seal
from stampede.store.coverage import COVERAGE, Coverage
from stampede.store.footers import Descriptions, metadata_of
from stampede.store.keys import overlapping, sortable
from stampede.store.objects import ObjectInfo
from stampede.store.runs import RunInfo, RunName
from stampede.store.schema import TableSpec

# Rows per row group: what one lookup fetches and decodes, 60 to 140 KB in 0.2 ms.
GROUP_ROWS = 2000
_KEYS = (b"stampede.inputs", b"stampede.rows", b"stampede.first", b"stampede.last")


@dataclass(frozen=True, eq=False)
class RunIndex:
    """The row groups of one part: all arrays of shape (row groups,).

    `firsts` and `lasts` are the least and greatest leading keys, as `sortable` returns them;
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

    def groups(self, wanted: np.ndarray) -> np.ndarray:
        """Numbers of the row groups that may hold any of `wanted`, which is sorted."""
        return overlapping(self.firsts, self.lasts, wanted)


class RunWriter:
    """Writes one part of a run into memory."""

    def __init__(self, spec: TableSpec) -> None:
        self.rows = 0
        self._ends: list[int | str] = []
        self._leading = spec.leading
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
            leading = rows[self._leading]
            self._ends = [*self._ends[:1], leading[0].as_py(), leading[-1].as_py()]

    def close(self, level: int, inputs: Sequence[str], coverage: Coverage) -> pa.Buffer:
        """Write the footer, and return the bytes of the file."""
        metadata = {
            "level": level,
            "inputs": list(inputs),
            "rows": self.rows,
            "first": self._ends[0] if self._ends else None,
            "last": self._ends[-1] if self._ends else None,
        }
        footer = {f"stampede.{name}": json.dumps(value) for name, value in metadata.items()}
        footer[COVERAGE.decode()] = coverage.to_json()
        self._writer.add_key_value_metadata(PLACEHOLDER | footer)
        self._writer.close()
        return seal(self._sink.getvalue())


def parse_footer(metadata: pq.FileMetaData, info: ObjectInfo) -> RunInfo:
    """The `RunInfo` in a part's footer. Raises `Damaged` if the object is not a run."""
    name = RunName.parse(info.key)
    if name is None:
        raise Damaged(f"{info.key} does not have the name of a run")
    pairs = metadata.metadata
    try:
        inputs, rows, first, last = (json.loads(pairs[key]) for key in _KEYS)
        coverage = Coverage.from_json(pairs[COVERAGE])
    except (KeyError, TypeError, ValueError):
        raise Damaged(f"{info.key} does not have the footer of a run") from None
    return RunInfo(name, info, tuple(inputs), coverage, rows, first, last)


def parse_index(key: str, footer: bytes, spec: TableSpec) -> RunIndex:
    """Where a part's row groups lie and which leading keys they hold.

    Raises `Damaged` if the footer does not have its checksums, and `pa.ArrowException` or `OSError`
    if it is not Parquet.
    """
    metadata = metadata_of(footer)
    check_footer(key, footer, metadata)
    firsts, lasts, extents = [], [], []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        head, tail = group.column(0), group.column(metadata.num_columns - 1)
        statistics = head.statistics
        firsts.append(statistics.min)
        lasts.append(statistics.max)
        start = head.dictionary_page_offset or head.data_page_offset
        end = (tail.dictionary_page_offset or tail.data_page_offset) + tail.total_compressed_size
        extents.append((start, end, group.num_rows))
    starts, ends, rows = np.array(extents, np.int64).reshape(-1, 3).T
    return RunIndex(
        sortable(firsts, spec),
        sortable(lasts, spec),
        starts,
        ends,
        rows,
        Descriptions(footer, metadata),
    )


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
