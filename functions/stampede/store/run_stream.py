"""The rows of a run in key order, slice by slice: what a merge reads."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stampede.store.keys import sortable
from stampede.store.merge_plan import Bound, RowGroups
from stampede.store.reader import RunFile
from stampede.store.runs import Run, RunInfo
from stampede.store.tables import Table


class RunStream:
    """Reads one run from its first key to its last."""

    def __init__(self, table: Table, run: Run) -> None:
        self.groups = RowGroups(table.reader, run)
        self._reader = table.reader
        self._leading = table.spec.schema.field(table.spec.leading)
        self._spec = table.spec
        self._file: RunFile | None = None
        self._read = 0  # row groups
        self._rest = table.spec.schema.empty_table().replace_schema_metadata()

    def take(self, bound: Bound) -> pa.Table:
        """The rows below `bound` that were not taken yet."""
        end = self._below(bound)
        wanted = self.groups.positions[self._read : end]
        tables = [self._rest]
        for part, positions in itertools.groupby(wanted, lambda position: position[0]):
            numbers = [number for _, number in positions]
            tables += self._open(part).read(numbers)
        self._read = max(self._read, end)
        rows = pa.concat_tables(tables)
        count = rows.num_rows
        if bound is not None:
            is_below = pc.less(rows[self._leading.name], pa.scalar(bound, self._leading.type))
            count = pc.sum(is_below).as_py() or 0
        self._rest = rows.slice(count)
        return rows.slice(0, count)

    def skip(self, bound: Bound) -> None:
        """Continue as if all rows below `bound` had been taken."""
        end = self._below(bound)
        if end > self._read:
            # Only the last row group that begins below the bound may reach beyond it.
            self._read = end - 1
            self._rest = self._rest.slice(0, 0)
        self.take(bound)

    def _open(self, part: RunInfo) -> RunFile:
        """The part, with its index: the cache may be too small for the indexes of all inputs."""
        if self._file is None or self._file.run is not part:
            self._file = self._reader.open(part)
        return self._file

    def _below(self, bound: Bound) -> int:
        """How many row groups begin below `bound`."""
        if bound is None:
            return len(self.groups.positions)
        return int(np.searchsorted(self.groups.firsts, sortable([bound], self._spec)[0]))
