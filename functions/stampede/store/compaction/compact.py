"""Compaction: merge the runs of one level into one run of the next, and delete old runs.

Any number of compactors may run, with listings of any age, and may stop anywhere: docs/store.md
explains why that is harmless.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import chain

import pyarrow as pa

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.store.compaction.garbage_collection import GarbageCollector
from stampede.store.compaction.plan import MergePlan, plan
from stampede.store.compaction.run_iterator import DamagedPart, RunStream, check_digest, read_part
from stampede.store.integrity.verification import unreadable
from stampede.store.objects.object_store import find
from stampede.store.offsets.coverage import Coverage
from stampede.store.programmes.rights import EVERYTHING, Rights
from stampede.store.runs.merge import sort_unique
from stampede.store.runs.packed_coverage import PackedCoverage, packed
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
Observe = Callable[[pa.Table], None]


class UnreadableOutput(StoreDown):
    """The store took a part, and does not give it, although it gives others."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} was stored and cannot be read")
        self.key = key


@dataclass(frozen=True)
class Policy:
    """How to compact.

    Attributes
    ----------
    fanout
        Runs of one level that are merged into one of the next.
    run_rows
        Approximate number of rows of each part of a merged run.
    slice_rows
        Rows merged at once.
    grace
        How long what was merged stays before it is deleted.
    major
        Merge all live runs into one.
    turn
        A number that differs between compactors that run at once: it decides which of several full
        groups of runs comes first, and the order of a merge's parts. Any is right; different ones
        share work.
    observe
        Called with each slice of merged rows before it is written. A slice has all rows of its
        leading keys in the merge. If it raises, these runs are merged again later.
    """

    fanout: int = 8
    run_rows: int = 4_000_000
    slice_rows: int = SLICE_ROWS
    grace: timedelta = timedelta(minutes=5)
    major: bool = False
    turn: int = 0
    observe: Observe = lambda rows: None


DEFAULTS = Policy()


def compact(
    table: Table,
    now: datetime,
    policy: Policy = DEFAULTS,
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
    progress
        Called after every part written and every key deleted.

    A part that is damaged, or that the store does not give although it gives others, stays as it
    is, and the other runs are merged without it. Raises `StoreDown`; merges and deletions done
    before it are kept.
    """
    return _Compaction(table, policy, progress).run(now)


class _Compaction:
    """One pass over a table: its report, and the parts that its merges leave out."""

    def __init__(self, table: Table, policy: Policy, progress: Progress) -> None:
        self._table, self._policy, self._progress = table, policy, progress
        self._report = Report()
        self._left_out: set[str] = set()  # damaged inputs: they stay out even if read again
        self._failed: set[str] = set()
        self._given_up: set[str] = set()  # what is merged no more in this pass: damaged twice

    def run(self, now: datetime) -> Report:
        """Make the pass. Raises `StoreDown`."""
        table, report = self._table, self._report
        table.refresh()
        self._delete_merged(now)
        table.refresh()
        while picked := self._pick():
            self._merge(*picked)
        report.damaged |= {part.key: VANISHED for part in table.listing.vanished()}
        table.keep_checkpoint(self._policy.grace)
        return report

    def _delete_merged(self, now: datetime) -> None:
        """Delete what was merged at least `grace` ago."""
        collector = GarbageCollector(self._table, now, self._policy.grace)
        # Those in quarantine first: a run that names one of them may itself be an input.
        for key in chain(collector.unreadable(), (part.key for part in collector.unneeded())):
            self._table.objects.delete(key)
            self._report.deleted.append(key)
            self._progress(self._report)
        self._report.damaged |= collector.proof.damaged

    def _pick(self) -> tuple[list[Run], int] | None:
        """The runs to merge next, and the level of the result; None if no level is full."""
        listed = [part for part in self._table.listed() if part.key not in self._left_out]
        return _pick(live(listed), self._policy)

    def _merge(self, runs: list[Run], level: int) -> None:
        """Merge these runs, or leave out what cannot be merged. Raises `StoreDown`."""
        table, report = self._table, self._report
        inputs = {part.key for run in runs for part in run}
        try:
            parts = merge(table, runs, level, self._policy, report, self._progress)
            table.listing.include(parts)
            self._judge_output(runs, inputs, {part.key for part in parts})
        except DamagedPart as error:
            self._leave_out(error)
        except UnreadableOutput as error:
            # The inputs stay: nothing is deleted for a run that cannot be read.
            report.damaged[error.key] = error.message
            self._given_up |= inputs
            self._left_out |= inputs
        except NotFound as error:
            report.overtaken += 1
            if report.overtaken == _TRIES:
                raise StoreDown(f"{table.spec.name}: inputs vanish: {error}") from error
            table.refresh()

    def _judge_output(self, runs: list[Run], inputs: set[str], written: set[str]) -> None:
        """Take up the merged run again if it was left out; leave out its inputs if it is no use."""
        self._left_out -= written - self._given_up
        if written & self._given_up:
            # Nor can what they were merged into be read: do not merge these for ever.
            self._given_up |= inputs
            self._left_out |= inputs
        elif runs[0][0].name.run in {run[0].name.run for run in live(self._table.runs())}:
            # Something else keeps the new run from being read.
            self._left_out |= inputs

    def _leave_out(self, error: DamagedPart) -> None:
        """Leave out a damaged input; give it up if it was damaged before.

        Its run stays as it is: no merged run claims its rows or its coverage.
        """
        key = error.part.key
        self._table.listing.put_into_quarantine(error.part, error.message)
        self._report.damaged[key] = error.message
        if key in self._failed:
            self._given_up.add(key)
        self._failed.add(key)
        self._left_out.add(key)


def merge(
    table: Table,
    runs: Sequence[Run],
    level: int,
    policy: Policy,
    report: Report,
    progress: Progress,
    rights: Rights = EVERYTHING,
) -> list[RunInfo]:
    """Merge `runs` into one of `level`, part by part, in memory that does not grow with the runs.

    Returns its parts. Those that are there already are not written again, so compactors that go by
    different orders (`Policy.turn`) share a merge, and each ends with all parts. Rows of programmes
    that are not among `rights` are left out. Every byte of an input that is read is verified.

    Raises `NotFound` if an input is gone, and `DamagedPart` if one is not what was written or
    cannot be read: nothing is merged without its rows, or with wrong ones.
    """
    table.map(partial(check_digest, table), [run[0] for run in runs])
    streams = [RunStream(table, run) for run in runs]
    groups = [stream.groups for stream in streams]
    # From the footers themselves, not from a checkpoint: it is the proof that the rows are there.
    coverage = Coverage.union(table.map(partial(_coverage, table), [run[0] for run in runs]))
    coverage = packed(coverage)
    size = policy.run_rows, policy.slice_rows
    planned = plan(runs, groups, level, *size, rights, isinstance(coverage, PackedCoverage))
    merger = _PartWriter(table, streams, planned, coverage, report, policy.observe)
    merged = []
    for number in _order_of_parts(len(planned.parts), policy.turn):
        if part := _find(table, merger.key(number)):
            merged.append(part)
            report.parts_found += 1
            continue
        merged.append(merger.write(number))
        progress(report)
    _count_inputs(report, runs, level)
    return merged


class _PartWriter:
    """Writes parts of a merge, in any order, from streams over its inputs."""

    def __init__(
        self,
        table: Table,
        streams: Sequence[RunStream],
        planned: MergePlan,
        coverage: Coverage,
        report: Report,
        observe: Observe,
    ) -> None:
        self._table, self._streams, self._plan = table, streams, planned
        self._coverage, self._report, self._observe = coverage, report, observe
        self._at = 0  # the part that the streams have come to

    def key(self, number: int) -> str:
        """The key of a part."""
        return self._plan.name(number).key(self._table.spec.name)

    def write(self, number: int) -> RunInfo:
        """Merge the rows of a part, slice by slice, and write it. Raises as `merge`."""
        self._move_to(number)
        table, planned, report = self._table, self._plan, self._report
        writer = RunWriter(table.spec)
        for bound in planned.parts[number]:
            rows = pa.concat_tables(table.map(partial(RunStream.take, bound=bound), self._streams))
            report.rows_read += rows.num_rows
            merged = planned.rights.rows(sort_unique(rows, table.spec))
            self._observe(merged)
            writer.add(merged)
        place = number, len(planned.parts)
        data = writer.close(planned.level, planned.inputs, self._coverage, planned.cuts, place)
        part = _put_checked(table, self.key(number), data, writer.rows)
        report.rows_written += writer.rows
        report.bytes_written += data.size
        report.written.append(part.key)
        return part

    def _move_to(self, number: int) -> None:
        """Move the streams to the first row of a part."""
        if number < self._at:
            for stream in self._streams:
                stream.rewind()
        if number not in (0, self._at):
            for stream in self._streams:
                stream.skip(self._plan.parts[number - 1][-1])
        self._at = number + 1


def _count_inputs(report: Report, runs: Sequence[Run], level: int) -> None:
    """Count a merge of these runs into one of `level`."""
    sizes = {run[0].name: sum(part.object.size for part in run) for run in runs}
    report.bytes_read += sum(sizes.values())
    report.bytes_new += sum(size for name, size in sizes.items() if name.level == 0)
    report.merged.append((len(runs), min(run[0].name.level for run in runs), level))


def _coverage(table: Table, part: RunInfo) -> Coverage:
    return read_part(table, part, lambda: table.reader.footer(part.object)).coverage


def _find(table: Table, key: str) -> RunInfo | None:
    """A part that is there and not known to be damaged. Raises `StoreDown`."""
    info = None if table.listing.quarantine.holds(key) else find(table.objects, key)
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


def _pick(runs: list[Run], policy: Policy) -> tuple[list[Run], int] | None:
    """The runs to merge next, and the level of the result; None if no level is full.

    A group of runs of the lowest full level, the oldest if `turn` is 0. If a backlog of fanout²
    small ones has built up, they rise two levels at once: read and written once, not twice.
    """
    levels: dict[int, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=_order):
        levels[run[0].name.level].append(run)
    for level, of_level in sorted(levels.items()):
        backlog = _group(of_level, policy.fanout**2, policy.turn)
        if backlog and sum(part.rows for run in backlog for part in run) <= policy.run_rows:
            return backlog, level + 2
        if group := _group(of_level, policy.fanout, policy.turn):
            return group, level + 1
    if policy.major and len(runs) > 1:
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
