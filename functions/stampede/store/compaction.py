"""Compaction: runs of one level merged into one of the next, old ones removed.

Any number of compactors may run, with views as old as they like, and stop anywhere: see
docs/store.md for why that is harmless.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stampede.errors import NotFound, StoreDown
from stampede.store.coverage import Coverage
from stampede.store.merge import sort_unique
from stampede.store.merge_plan import Bound, Groups, Run, plan
from stampede.store.reader import RunFile
from stampede.store.runs import RunInfo, RunWriter, prefix, sortable
from stampede.store.tables import Table, complete, live

# Rows merged at once: what bounds the memory, with one written part.
SLICE_ROWS = 128 * 1024
# How many merges in a row may find their inputs gone.
_TRIES = 5


@dataclass
class Report:
    """What a compaction did: runs and levels, rows, bytes, keys."""

    merged: list[tuple[int, int, int]] = field(default_factory=list)  # runs, levels from and to
    rows_read: int = 0
    rows_written: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_new: int = 0  # of those read, in runs that had never been merged
    parts_found: int = 0  # written by another compactor, or before a crash
    written: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    overtaken: int = 0  # merges given up because another compactor was faster


Progress = Callable[[Report], None]


def compact(
    table: Table,
    now: datetime,
    *,
    fanout: int = 8,
    run_rows: int = 4_000_000,
    grace: timedelta = timedelta(minutes=5),
    major: bool = False,
    slice_rows: int = SLICE_ROWS,
    progress: Progress = lambda report: None,
) -> Report:
    """Remove what was merged more than `grace` ago, then merge until no level is full.

    Parameters
    ----------
    now
        The time, by the store's clock, against which `grace` is measured.
    fanout
        Runs of one level that are merged into one of the next.
    run_rows
        A merged run is cut into parts of about so many rows.
    major
        Merge all live runs into one.
    progress
        Called after every part written and every key deleted.

    Raises `StoreDown`; what was done until then stays done.
    """
    report = Report()
    table.refresh()
    sweep(table, now, grace, report, progress)
    table.refresh()
    while picked := _pick(live(table.listed()), fanout, run_rows, major):
        try:
            merge(table, *picked, run_rows, slice_rows, report, progress)
        except NotFound as error:
            report.overtaken += 1
            if report.overtaken == _TRIES:
                raise StoreDown(f"{table.spec.name}: inputs vanish: {error}") from error
        table.refresh()
    return report


def sweep(
    table: Table, now: datetime, grace: timedelta, report: Report, progress: Progress
) -> None:
    """Delete the parts that nobody needs any more, lowest level first.

    Inputs of a run that has been complete for `grace`; and parts of a run that somebody left
    half-written at least `grace` ago, once other complete runs hold the rows of all its inputs.
    """
    parts = table.listed()
    whole = complete(parts)
    finished = {run[0].name.run for run in whole}
    held = {name for run in whole for name in run[0].inputs}
    settled = {
        name
        for run in whole
        if all(now - part.object.modified >= grace for part in run)
        for name in run[0].inputs
    }

    def there(run: str) -> int:
        return sum(1 for _ in table.objects.list(prefix(table.spec.name) + run))

    def abandoned(part: RunInfo) -> bool:
        # The listing is old by now. Only in this order do new ones prove that no input went
        # because this very run was complete.
        return (
            part.name.run not in finished
            and now - part.object.modified >= grace
            and all(name in held or not there(name) for name in part.inputs)
            and there(part.name.run) < part.name.parts
        )

    for part in parts:
        if part.name.run in settled or abandoned(part):
            table.objects.delete(part.key)
            report.deleted.append(part.key)
            progress(report)


def merge(
    table: Table,
    runs: Sequence[Run],
    level: int,
    run_rows: int,
    slice_rows: int,
    report: Report,
    progress: Progress,
) -> None:
    """Merge `runs` into one of `level`, part by part, in memory that does not grow with them.

    Raises `NotFound` where an input is gone, so that nothing is merged without its rows.
    """
    streams = [_Stream(table, run) for run in runs]
    planned = plan(runs, [stream.groups for stream in streams], level, run_rows, slice_rows)
    coverage = Coverage.union(run[0].coverage for run in runs)
    there = {part.key for part in table.listed()}
    for number, bounds in enumerate(planned.parts):
        key = planned.name(number).key(table.spec.name)
        if key in there:
            report.parts_found += 1
            for stream in streams:
                stream.skip(bounds[-1])
            continue
        writer = RunWriter(table.spec)
        for bound in bounds:
            rows = pa.concat_tables(table.map(partial(_Stream.take, bound=bound), streams))
            report.rows_read += rows.num_rows
            writer.add(sort_unique(rows, table.spec))
        data = writer.close(level, planned.inputs, coverage)
        table.objects.put(key, memoryview(data))
        found = table.reader.footer(table.objects.head(key))
        if (found.object.size, found.rows) != (data.size, writer.rows):
            raise StoreDown(f"{key} does not read back as it was written")
        report.rows_written += writer.rows
        report.bytes_written += data.size
        report.written.append(key)
        progress(report)
    sizes = {run[0].name: sum(part.object.size for part in run) for run in runs}
    report.bytes_read += sum(sizes.values())
    report.bytes_new += sum(size for name, size in sizes.items() if name.level == 0)
    report.merged.append((len(runs), min(run[0].name.level for run in runs), level))


def _pick(runs: list[Run], fanout: int, run_rows: int, major: bool) -> tuple[list[Run], int] | None:
    """The runs to be merged next, and the level they go to.

    The oldest of the lowest full level. Of a backlog of small ones fanout² at once go up two
    levels: read and written once, not twice.
    """
    levels: dict[int, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=_age):
        levels[run[0].name.level].append(run)
    for level, some in sorted(levels.items()):
        many = some[: fanout**2]
        if len(many) == fanout**2 and sum(part.rows for run in many for part in run) <= run_rows:
            return many, level + 2
        if len(some) >= fanout:
            return some[:fanout], level + 1
    if major and len(runs) > 1:
        return [run for _, some in sorted(levels.items()) for run in some], max(levels) + 1
    return None


def _age(run: Run) -> tuple[datetime, str]:
    return max(part.object.modified for part in run), run[0].name.run


class _Stream:
    """The rows of one run in key order, slice by slice."""

    def __init__(self, table: Table, run: Run) -> None:
        self.groups = Groups(table.reader, run)
        self._reader = table.reader
        self._leading = table.spec.schema.field(table.spec.leading)
        self._spec = table.spec
        self._file: RunFile | None = None
        self._at = 0  # row groups read
        self._rest = table.spec.schema.empty_table().replace_schema_metadata()

    def take(self, bound: Bound) -> pa.Table:
        """The rows after those taken before and below `bound`."""
        end = self._below(bound)
        wanted = self.groups.places[self._at : end]
        tables = [self._rest]
        for part, places in itertools.groupby(wanted, lambda place: place[0]):
            numbers = [number for _, number in places]
            tables += self._open(part).read(numbers)
        self._at = max(self._at, end)
        rows = pa.concat_tables(tables)
        below = rows.num_rows
        if bound is not None:
            is_below = pc.less(rows[self._leading.name], pa.scalar(bound, self._leading.type))
            below = pc.sum(is_below).as_py() or 0
        self._rest = rows.slice(below)
        return rows.slice(0, below)

    def skip(self, bound: Bound) -> None:
        """Go on as if all rows below `bound` had been taken."""
        end = self._below(bound)
        if end > self._at:
            # Only the last row group that begins below the bound may go on beyond it.
            self._at = end - 1
            self._rest = self._rest.slice(0, 0)
        self.take(bound)

    def _open(self, part: RunInfo) -> RunFile:
        """The part, its index held: the cache may be too small for those of all inputs."""
        if self._file is None or self._file.run is not part:
            self._file = self._reader.open(part)
        return self._file

    def _below(self, bound: Bound) -> int:
        """How many row groups begin below `bound`."""
        if bound is None:
            return len(self.groups.places)
        return int(np.searchsorted(self.groups.firsts, sortable([bound], self._spec)[0]))
