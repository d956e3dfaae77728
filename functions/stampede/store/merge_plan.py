"""The plan of a merge: where its output is cut, decided before a row is read.

The plan follows from the row groups of the inputs alone, and the output's name from the plan:
whoever writes an object of that name writes the same rows in the same bytes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from stampede.store.reader import RunReader
from stampede.store.runs import RunInfo, RunName, digest

# The bytes of a merged run depend on the program too. A change of how runs are written or
# versions of a row are compared counts this up.
FORMAT = f"1 {pa.__version__}"

Run = tuple[RunInfo, ...]  # all parts of one run, in key order
Bound = Any  # a leading key, int or str; None at the end of all keys


@dataclass(frozen=True)
class MergePlan:
    """A merge: for each part of the output the upper bounds (exclusive) of its slices."""

    level: int
    inputs: tuple[str, ...]
    parts: tuple[tuple[Bound, ...], ...]

    def name(self, part: int) -> RunName:
        """The name of a part of the output."""
        text = json.dumps([FORMAT, self.inputs, self.parts])
        return RunName(self.level, digest(text), part, len(self.parts))


class Groups:
    """The row groups of one run, all its parts in a row.

    `firsts`, shape (row groups,), ascending: the least leading key of each; `rows`: how many;
    `places`: part and number in the part.
    """

    def __init__(self, reader: RunReader, run: Run) -> None:
        indexes = [reader.index(part) for part in run]
        self.firsts = np.concatenate([index.firsts for index in indexes])
        self.rows = np.concatenate([index.rows for index in indexes])
        self.places = [
            (part, number)
            for part, index in zip(run, indexes, strict=True)
            for number in range(len(index.rows))
        ]


def plan(
    runs: Sequence[Run], groups: Sequence[Groups], level: int, run_rows: int, slice_rows: int
) -> MergePlan:
    """Cut the merge of `runs` into parts of about `run_rows`, these into slices to be held at once.

    Rows are counted by the row groups they begin in and before versions merge. A leading key is
    never cut, however many rows it has.
    """
    firsts = np.concatenate([some.firsts for some in groups])
    order = np.argsort(firsts, kind="stable")
    firsts = firsts[order]
    before = np.cumsum(np.concatenate([[0], np.concatenate([g.rows for g in groups])[order]]))
    parts: list[list[Bound]] = [[]]
    at = begun = 0  # the row groups at which this slice and this part begin
    while at < len(firsts):
        end = int(np.searchsorted(before, before[at] + min(slice_rows, run_rows), "right")) - 1
        if end < len(firsts):
            end = int(np.searchsorted(firsts, firsts[end], "left"))
        if end <= at:  # one key fills the slice
            end = int(np.searchsorted(firsts, firsts[at], "right"))
        if parts[-1] and before[end] - before[begun] > run_rows:
            parts.append([])
            begun = at
        parts[-1].append(_bound(firsts[end]) if end < len(firsts) else None)
        at = end
    return MergePlan(
        level,
        tuple(sorted(run[0].name.run for run in runs)),
        tuple(tuple(bounds) for bounds in parts) if len(firsts) else ((None,),),
    )


def _bound(first: np.generic) -> Bound:
    value = first.item()
    return value.decode() if isinstance(value, bytes) else value
