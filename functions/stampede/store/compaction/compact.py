"""Compaction: merge the runs of one level into one run of the next, and delete old runs.

Any number of compactors may run, with listings of any age, and may stop anywhere: docs/store.md
explains why that is harmless.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import chain

import pyarrow as pa

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.store.compaction.garbage_collection import Sweep
from stampede.store.compaction.plan import plan
from stampede.store.compaction.run_iterator import DamagedPart, RunStream, check_digest, read_part
from stampede.store.integrity.verification import unreadable
from stampede.store.objects.object_store import find
from stampede.store.offsets.coverage import Coverage
from stampede.store.programmes.rights import EVERYTHING, Rights
from stampede.store.runs.merge import sort_unique
from stampede.store.runs.run import Run, RunInfo, live
from stampede.store.runs.writer import RunWriter
from stampede.store.tables.listing import VANISHED
from stampede.store.tables.table import Table

# Rows merged at once. They and one written part bound the memory.
SLICE_ROWS = 128 * 1024
# A compaction fails when so many of its merges found an input gone.
_TRIES = 5


@dataclass
class Report:
    """What a compaction did.

    `merged` has an entry per merge: number of runs, the lowest level among them, the new level.
    """

    merged: list[tuple[int, int, int]] = field(default_factory=list)
    rows_read: int = 0
    rows_written: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_new: int = 0  # the share of `bytes_read` from runs of level 0
    parts_found: int = 0  # already written, by another compactor or before a crash
    written: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    overtaken: int = 0  # merges that another compactor finished first
    # Keys of parts that are lost or damaged, and what is wrong: nothing was deleted for them.
    damaged: dict[str, str] = field(default_factory=dict)


Progress = Callable[[Report], None]


class UnreadableOutput(StoreDown):
    """The store took a part, and does not give it, although it gives others."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} was stored and cannot be read")
        self.key = key


def compact(
    table: Table,
    now: datetime,
    *,
    fanout: int = 8,
    run_rows: int = 4_000_000,
    grace: timedelta = timedelta(minutes=5),
    major: bool = False,
    turn: int = 0,
    slice_rows: int = SLICE_ROWS,
    progress: Progress = lambda report: None,
) -> Report:
    """Delete what was merged at least `grace` ago, then merge until no level is full.

    All merges follow from one listing: what a merge writes is added to it. A merge that another
    compactor made is found by its name, and one whose inputs are gone makes it list again. In the
    end a checkpoint is written if one is due.

    Parameters
    ----------
    now
        The present time; `grace` counts from it. A wrong clock loses nothing.
    fanout
        Runs of one level that are merged into one of the next.
    run_rows
        Approximate number of rows of each part of a merged run.
    major
        Merge all live runs into one.
    turn
        A number that differs between compactors that run at once: it decides which of several full
        groups of runs comes first, and the order of a merge's parts. Any is right; different ones
        share work.
    progress
        Called after every part written and every key deleted.

    A part that is damaged, or that the store does not give although it gives others, stays as it
    is, and the other runs are merged without it. Raises `StoreDown`; merges and deletions done
    before it are kept.
    """
    report = Report()
    table.refresh()
    sweep = Sweep(table, now, grace)
    # Those in quarantine first: a run that names one of them may itself be an input.
    for key in chain(sweep.unreadable(), (part.key for part in sweep.unneeded())):
        table.objects.delete(key)
        report.deleted.append(key)
        progress(report)
    report.damaged |= sweep.holders.damaged
    table.refresh()
    left_out: set[str] = set()  # damaged inputs: they stay out even if they are read again
    failed: set[str] = set()
    given_up: set[str] = set()  # what is merged no more in this pass: it was damaged twice
    while picked := _pick(live(_without(table, left_out)), fanout, run_rows, major, turn):
        runs, level = picked
        inputs = {part.key for run in runs for part in run}
        try:
            parts = merge(table, runs, level, run_rows, slice_rows, report, progress, turn)
            table.include(parts)
            written = {part.key for part in parts}
            left_out -= written - given_up
            if written & given_up:
                # Nor can what they were merged into be read: do not merge these for ever.
                given_up |= inputs
                left_out |= inputs
            elif runs[0][0].name.run in {run[0].name.run for run in live(table.runs())}:
                # Something else keeps the new run from being read.
                left_out |= inputs
        except DamagedPart as error:
            # Its run stays as it is: no merged run claims its rows or its coverage.
            table.put_into_quarantine(error.part, error.message)
            report.damaged[error.part.key] = error.message
            if error.part.key in failed:
                given_up.add(error.part.key)
            failed.add(error.part.key)
            left_out.add(error.part.key)
        except UnreadableOutput as error:
            # The inputs stay: nothing is deleted for a run that cannot be read.
            report.damaged[error.key] = error.message
            given_up |= inputs
            left_out |= inputs
        except NotFound as error:
            report.overtaken += 1
            if report.overtaken == _TRIES:
                raise StoreDown(f"{table.spec.name}: inputs vanish: {error}") from error
            table.refresh()
    report.damaged |= {part.key: VANISHED for part in table.vanished()}
    table.keep_checkpoint(grace)
    return report


def merge(
    table: Table,
    runs: Sequence[Run],
    level: int,
    run_rows: int,
    slice_rows: int,
    report: Report,
    progress: Progress,
    turn: int = 0,
    rights: Rights = EVERYTHING,
) -> list[RunInfo]:
    """Merge `runs` into one of `level`, part by part, in memory that does not grow with the runs.

    Returns its parts. Those that are there already are not written again, so compactors that go by
    different orders (`turn`) share a merge, and each ends with all parts. Rows of programmes that
    are not among `rights` are left out. Every byte of an input that is read is verified.

    Raises `NotFound` if an input is gone, and `DamagedPart` if one is not what was written or
    cannot be read: nothing is merged without its rows, or with wrong ones.
    """
    table.map(partial(check_digest, table), [run[0] for run in runs])
    streams = [RunStream(table, run) for run in runs]
    planned = plan(runs, [stream.groups for stream in streams], level, run_rows, slice_rows, rights)
    # From the footers themselves, not from a checkpoint: it is the proof that the rows are there.
    coverage = Coverage.union(table.map(partial(_coverage, table), [run[0] for run in runs]))
    count = len(planned.parts)
    merged = []
    at = 0  # the part that the streams have come to
    for number in _order_of_parts(count, turn):
        key = planned.name(number).key(table.spec.name)
        if part := _find(table, key):
            merged.append(part)
            report.parts_found += 1
            continue
        if number < at:
            for stream in streams:
                stream.rewind()
        if number not in (0, at):
            for stream in streams:
                stream.skip(planned.parts[number - 1][-1])
        at = number + 1
        bounds = planned.parts[number]
        writer = RunWriter(table.spec)
        for bound in bounds:
            rows = pa.concat_tables(table.map(partial(RunStream.take, bound=bound), streams))
            report.rows_read += rows.num_rows
            writer.add(rights.rows(sort_unique(rows, table.spec)))
        data = writer.close(level, planned.inputs, coverage, planned.cuts, (number, count))
        merged.append(_put_checked(table, key, data, writer.rows))
        report.rows_written += writer.rows
        report.bytes_written += data.size
        report.written.append(key)
        progress(report)
    sizes = {run[0].name: sum(part.object.size for part in run) for run in runs}
    report.bytes_read += sum(sizes.values())
    report.bytes_new += sum(size for name, size in sizes.items() if name.level == 0)
    report.merged.append((len(runs), min(run[0].name.level for run in runs), level))
    return merged


def _without(table: Table, left_out: Collection[str]) -> list[RunInfo]:
    return [part for part in table.listed() if part.key not in left_out]


def _coverage(table: Table, part: RunInfo) -> Coverage:
    return read_part(table, part, lambda: table.reader.footer(part.object)).coverage


def _find(table: Table, key: str) -> RunInfo | None:
    """A part that is there and not known to be damaged. Raises `StoreDown`."""
    info = None if table.in_quarantine(key) else find(table.objects, key)
    try:
        return table.reader.footer(info) if info else None
    except (Damaged, NotFound):
        return None


def _put_checked(table: Table, key: str, data: pa.Buffer, rows: int) -> RunInfo:
    """Write a part and read its footer back. Raises `StoreDown` if they differ.

    `UnreadableOutput` if the store fails at this part alone.
    """
    table.objects.put(key, memoryview(data))
    try:
        written = table.reader.footer(table.objects.head(key))
    except Damaged as error:
        raise StoreDown(f"{key} does not read back as it was written: {error}") from error
    except StoreDown as error:
        if not unreadable(table.objects, key):
            raise
        raise UnreadableOutput(key) from error
    if (written.object.size, written.rows) != (data.size, rows):
        raise StoreDown(f"{key} does not read back as it was written")
    return written


def _pick(
    runs: list[Run], fanout: int, run_rows: int, major: bool, turn: int
) -> tuple[list[Run], int] | None:
    """The runs to merge next, and the level of the result; None if no level is full.

    A group of runs of the lowest full level, the oldest if `turn` is 0. If a backlog of fanout²
    small ones has built up, they rise two levels at once: read and written once, not twice.
    """
    levels: dict[int, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=_order):
        levels[run[0].name.level].append(run)
    for level, of_level in sorted(levels.items()):
        backlog = _group(of_level, fanout**2, turn)
        if backlog and sum(part.rows for run in backlog for part in run) <= run_rows:
            return backlog, level + 2
        if group := _group(of_level, fanout, turn):
            return group, level + 1
    if major and len(runs) > 1:
        return [run for _, of_level in sorted(levels.items()) for run in of_level], max(levels) + 1
    return None


def _order_of_parts(count: int, turn: int) -> list[int]:
    """The numbers of the parts of a merge, in another order for each `turn`; 0: ascending.

    Two compactors that both went up would meet, and from there on write the same parts.
    """
    return random.Random(turn).sample(range(count), count) if turn else list(range(count))


def _group(of_level: list[Run], width: int, turn: int) -> list[Run]:
    """So many neighbouring runs, of which no two groups share one; none if there are too few."""
    groups = len(of_level) // width
    start = turn % groups * width if groups else len(of_level)
    return of_level[start : start + width]


def _order(run: Run) -> tuple[datetime, str]:
    return max(part.object.modified for part in run), run[0].name.run
