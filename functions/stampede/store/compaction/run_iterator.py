"""The rows of a run in key order, slice by slice: what a merge reads."""

import itertools
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import TypeVar

import numpy as np
import pyarrow as pa

from stampede.errors import Damaged
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.compaction.plan import Bound, RowGroups
from stampede.store.integrity.verification import twice
from stampede.store.runs.keys import sortable
from stampede.store.runs.reader import MIB, RunFile
from stampede.store.runs.run import Run, RunInfo
from stampede.store.runs.run_name import name_of
from stampede.store.tables.table import Table

PIECE = 8 * MIB  # bytes of a run in memory while it is held to its name

A = TypeVar("A")


class DamagedPart(Damaged):
    """A part of a run that a merge reads is not what was written, or the store does not give it."""

    def __init__(self, part: RunInfo, message: str) -> None:
        super().__init__(message)
        self.part = part


def read_part(table: Table, part: RunInfo, read: Callable[[], A]) -> A:
    """What `read` returns of a part; `DamagedPart` where `twice` raises `Damaged`."""
    try:
        return twice(table.objects, part.key, read)
    except Damaged as error:
        raise DamagedPart(part, error.message) from None


def check_digest(table: Table, part: RunInfo) -> None:
    """Hold a run of level 0 to the digest in its name, so that a merge claims no other run's name.

    The name of a merged run was checked with its footer. Raises `DamagedPart`, `NotFound`,
    `StoreDown`.
    """
    if part.name.level:
        return

    def check() -> None:
        state = sha256()
        for start in range(0, part.object.size, PIECE):
            state.update(table.objects.get(part.key, start, PIECE))
        if name_of(state.hexdigest()) != part.name.digest:
            raise Damaged(f"{part.key} is damaged: its bytes do not have the digest in its name")

    read_part(table, part, check)


class RunStream:
    """Reads one run from its first key to its last."""

    def __init__(self, table: Table, run: Run) -> None:
        self.groups = _row_groups(table, run)
        self._table = table
        self._leading = table.spec.schema.field(table.spec.leading)
        self._spec = table.spec
        self._file: RunFile | None = None
        self._read = 0  # row groups
        self._rest = table.spec.no_rows

    def take(self, bound: Bound) -> pa.Table:
        """The rows below `bound` that were not taken yet."""
        end = self._below(bound)
        wanted = self.groups.positions[self._read : end]
        tables = [self._rest]
        for part, positions in itertools.groupby(wanted, lambda position: position[0]):
            tables += self._read_groups(part, [number for _, number in positions])
        self._read = max(self._read, end)
        rows = pa.concat_tables(tables)
        count = rows.num_rows
        if bound is not None:
            is_below = pc.less(rows[self._leading.name], pa.scalar(bound, self._leading.type))
            count = pc.sum(is_below).as_py() or 0
        self._rest = rows.slice(count)
        return rows.slice(0, count)

    def rewind(self) -> None:
        """Begin again at the first key."""
        self._read = 0
        self._rest = self._rest.slice(0, 0)

    def skip(self, bound: Bound) -> None:
        """Continue as if all rows below `bound` had been taken."""
        end = self._below(bound)
        if end > self._read:
            # Only the last row group that begins below the bound may reach beyond it.
            self._read = end - 1
            self._rest = self._rest.slice(0, 0)
        self.take(bound)

    def _read_groups(self, part: RunInfo, numbers: list[int]) -> list[pa.Table]:
        return read_part(self._table, part, lambda: self._open(part).read(numbers))

    def _open(self, part: RunInfo) -> RunFile:
        """The part, with its index: the cache may be too small for the indexes of all inputs."""
        if self._file is None or self._file.run is not part:
            self._file = self._table.reader.open(part)
        return self._file

    def _below(self, bound: Bound) -> int:
        """How many row groups begin below `bound`."""
        if bound is None:
            return len(self.groups.positions)
        return int(np.searchsorted(self.groups.firsts, sortable([bound], self._spec)[0]))


def _row_groups(table: Table, run: Run) -> RowGroups:
    indexes = [read_part(table, part, partial(table.reader.index, part)) for part in run]
    return RowGroups(run, indexes)
