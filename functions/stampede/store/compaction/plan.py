"""The plan of a merge: where its output is cut, decided before any row is read.

The plan follows from the row groups of the inputs alone, and the output's name from the plan.
So every compactor that writes an object of that name writes the same rows in the same bytes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from stampede.store.parquet import zstd
from stampede.store.programmes.rights import EVERYTHING, Rights
from stampede.store.runs.footer import RunIndex
from stampede.store.runs.run import Run
from stampede.store.runs.run_name import RunName, digest

# The bytes of a merged run depend on the program too. Increase this number when you change how
# runs are written or how versions of a row are compared.
FORMAT = f"6 {pa.__version__}"

Bound = Any  # a leading key, int or str; None is after all keys


@dataclass(frozen=True)
class MergePlan:
    """A merge: for each part of the output the upper bounds (exclusive) of its slices.

    Rows of programmes that are not among `rights` are left out. `packed` is whether the offsets of
    the output have a block of their own.
    """

    level: int
    inputs: tuple[str, ...]
    parts: tuple[tuple[Bound, ...], ...]
    rights: Rights = EVERYTHING
    packed: bool = False

    @property
    def cuts(self) -> str:
        """A digest of the bounds and of the program's version: with the inputs they are the name.

        So is which rows are left out: the same name has the same rows.

        Each part's footer holds it, so that a reader can hold a part to its name.
        """
        programids, without = self.rights
        left_out: list[Any] = [] if programids is None else [sorted(programids)]
        left_out += [{"without": sorted(without)}] if without else []
        # Versions before wrote these offsets into the footer: other bytes need another name.
        packed = [f"packed 1 {zstd.VERSION}"] if self.packed else []
        return digest(json.dumps([FORMAT, self.parts, *left_out, *packed]))

    def name(self, part: int) -> RunName:
        """The name of a part of the output."""
        return RunName.merged(self.level, self.inputs, self.cuts, part, len(self.parts))


class RowGroups:
    """The row groups of one run, all its parts in a row.

    `firsts`, shape (row groups,), ascending: the least leading key of each; `rows`: its number of
    rows; `positions`: its part and its number in the part.
    """

    def __init__(self, run: Run, indexes: Sequence[RunIndex]) -> None:
        self.firsts = np.concatenate([index.firsts for index in indexes])
        self.rows = np.concatenate([index.rows for index in indexes])
        self.positions = [
            (part, number)
            for part, index in zip(run, indexes, strict=True)
            for number in range(len(index.rows))
        ]


def plan(
    runs: Sequence[Run],
    groups: Sequence[RowGroups],
    level: int,
    run_rows: int,
    slice_rows: int,
    rights: Rights = EVERYTHING,
    packed: bool = False,
) -> MergePlan:
    """Cut the merge of `runs` into parts of about `run_rows`, and these into slices.

    A slice is what a merge holds in memory at once. Rows are counted by the row groups they begin
    in, before versions merge. A leading key is never cut, even if it has more rows.
    """
    firsts = np.concatenate([of_run.firsts for of_run in groups])
    rows = np.concatenate([of_run.rows for of_run in groups])
    order = np.argsort(firsts, kind="stable")
    firsts = firsts[order]
    rows_before = np.cumsum(np.concatenate([[0], rows[order]]))
    parts: list[list[Bound]] = [[]]
    slice_start = part_start = 0  # row groups
    while slice_start < len(firsts):
        most = rows_before[slice_start] + min(slice_rows, run_rows)
        end = int(np.searchsorted(rows_before, most, "right")) - 1
        if end < len(firsts):
            end = int(np.searchsorted(firsts, firsts[end], "left"))
        if end <= slice_start:  # one key fills the slice
            end = int(np.searchsorted(firsts, firsts[slice_start], "right"))
        if parts[-1] and rows_before[end] - rows_before[part_start] > run_rows:
            parts.append([])
            part_start = slice_start
        parts[-1].append(_bound(firsts[end]) if end < len(firsts) else None)
        slice_start = end
    return MergePlan(
        level,
        tuple(sorted(run[0].name.run for run in runs)),
        tuple(tuple(bounds) for bounds in parts) if len(firsts) else ((None,),),
        rights,
        packed,
    )


def _bound(first: np.generic) -> Bound:
    value = first.item()
    return value.decode() if isinstance(value, bytes) else value
