"""Bugs planted on purpose: each is the real code with one thought forgotten."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from stampede.deadletters.dead_letter import event_of, table_of_key, write_rows
from stampede.deadletters.purge import Purged
from stampede.deadletters.reader import DeadLetterReader
from stampede.errors import NotFound
from stampede.store.compaction import compact as compaction
from stampede.store.compaction import plan
from stampede.store.compaction.garbage_collection import GarbageCollector
from stampede.store.compaction.image_merge import ImageMerger
from stampede.store.compaction.packet_merge import Merge
from stampede.store.compaction.run_iterator import RunStream
from stampede.store.integrity import orphans
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs import merged_images
from stampede.store.packs.pack import Pack
from stampede.store.replication.copy import Copied
from stampede.store.replication.replica import Replica
from stampede.store.runs.packed_coverage import UnreadCoverage
from stampede.store.runs.reader import RunReader
from stampede.store.runs.run import Run, RunInfo, complete, inputs_of
from stampede.store.runs.run_name import prefix
from stampede.store.runs.schema import PackSpec
from stampede.store.runs.writer import RunWriter
from stampede.store.tables import checkpoint, checkpoint_files
from stampede.store.tables.listing import Listing
from stampede.store.tables.table import Table
from stampede.store.tables.view import TableView
from tests.store.simulation.campaign import MERGES, ORPHANS, Scenario, run
from tests.store.simulation.requests import Faults

Bug = Callable[[], AbstractContextManager[Any]]


def sweep_that_trusts_its_listing() -> AbstractContextManager[Any]:
    """It deletes what a listing shows half-written, and asks the store nothing more."""

    def unneeded(table: Table, now: datetime, grace: timedelta) -> Iterator[RunInfo]:
        parts = []
        for info in table.objects.list(prefix(table.spec.name)):
            with suppress(NotFound):
                parts.append(table.reader.footer(info))
        runs = complete(parts)
        finished = {run[0].name.run for run in runs}
        merged, settled = inputs_of(runs), _settled(runs, now, grace)
        listed = {part.name.run for part in parts}
        for part in parts:
            if part.name.run in settled or (
                part.name.run not in finished
                and part.age(now) >= grace
                and all(name in merged or name not in listed for name in part.inputs)
            ):
                yield part

    return _collecting(unneeded)


def merged_run_on_its_inputs_level() -> AbstractContextManager[Any]:
    """A merged run keeps the greatest level of its inputs, if that is not 0."""
    pick = compaction._pick

    def same_level(*arguments: Any) -> tuple[list[Run], int] | None:
        picked = pick(*arguments)
        return picked and (picked[0], max(1, *(run[0].name.level for run in picked[0])))

    return patch.object(compaction, "_pick", same_level)


def purge_that_deletes_before_it_has_read_back() -> AbstractContextManager[Any]:
    """It deletes the old object, and reads the letters that stay afterwards."""

    def purge(objects: Objects, reader: DeadLetterReader, removable: Callable[..., bool]) -> Purged:
        for info, rows in reader.contents():
            table = table_of_key(info.key)
            events = [event_of(row) for row in rows.select(["attributes", "data"]).to_pylist()]
            stays = [not goes for goes in removable(table, events)]
            if not all(stays):
                kept = any(stays) and write_rows(table, rows.filter(pa.array(stays)))
                if kept:
                    objects.put(*kept)
                objects.delete(info.key)
                if kept:
                    objects.get(kept[0])
        return Purged(0, 0)

    return patch("tests.store.simulation.actors.purge", purge)


def replication_that_sends_the_run_before_its_pack() -> AbstractContextManager[Any]:
    """It copies each object as it is announced."""

    def copy(self: Replica, key: str) -> Any:
        try:
            return self._copier.copy(key)
        except NotFound:
            return Copied(0, False)

    return patch.object(Replica, "copy", copy)


def merge_that_skips_a_row() -> AbstractContextManager[Any]:
    """The first row of a slice is lost if the slice before it had a rest."""
    take = RunStream.take

    def skipping(self: RunStream, bound: Any) -> pa.Table:
        rest = self._rest.num_rows
        rows = take(self, bound)
        return rows.slice(1) if rest and rows.num_rows else rows

    return patch.object(RunStream, "take", skipping)


def coverage_forgotten() -> AbstractContextManager[Any]:
    """A run merged from merged runs has no coverage."""
    close = RunWriter.close

    def forgetful(
        self: RunWriter, level: int, inputs: Sequence[str], coverage: Coverage, *more: Any
    ) -> Any:
        return close(self, level, inputs, coverage if level < 2 else Coverage(), *more)

    return patch.object(RunWriter, "close", forgetful)


def name_without_the_cuts() -> AbstractContextManager[Any]:
    """The name of a merged run does not depend on where it is cut."""

    def name(self: plan.MergePlan, part: int) -> Any:
        digest = plan.digest("|".join(self.inputs))
        return plan.RunName(self.level, digest, part, len(self.parts))

    return patch.object(plan.MergePlan, "name", name)


def memory_that_knows_one_merge_only() -> AbstractContextManager[Any]:
    """A run that is gone is lost unless a run that is there lists it as an input."""

    def not_held(self: TableView, gone: Iterable[RunInfo]) -> list[RunInfo]:
        merged = inputs_of(self._by_run.values())
        return [part for part in gone if part.name.run not in merged]

    return patch.object(TableView, "not_held", not_held)


def checkpoint_in_place_of_a_listing() -> AbstractContextManager[Any]:
    """A start reads the parts that the checkpoint names, and no others."""
    read = Listing._read_footers

    def named(self: Listing, listed: Sequence[ObjectInfo], seen: dict[str, RunInfo]) -> bool:
        if self.checkpoint and self._seen is None:
            listed = [info for info in listed if info.key in self.checkpoint.parts]
        return read(self, listed, seen)

    return patch.object(Listing, "_read_footers", named)


def checkpoint_with_the_coverage_of_another_run() -> AbstractContextManager[Any]:
    """A part gets the coverage of the part before it."""
    write = checkpoint_files.write_checkpoint

    def shifted(parts: Iterable[RunInfo], *more: Any) -> Any:
        parts = list(parts)
        coverages = [part.coverage for part in parts[-1:] + parts[:-1]]
        moved = [replace(part, coverage=c) for part, c in zip(parts, coverages, strict=True)]
        return write(moved, *more)

    return patch.object(checkpoint_files, "write_checkpoint", shifted)


def block_with_the_offsets_of_one_input() -> AbstractContextManager[Any]:
    """A merged run whose offsets have no room in the footer keeps those of its first input."""

    def packed(coverage: Coverage) -> Coverage:
        made = pack(coverage)
        first = coverage.partitions()[:1]
        few = {at: np.array(coverage.intervals(*at)[:1], np.int64) for at in first}
        return pack(Coverage(few)) if made is not coverage else made

    pack = compaction.packed
    return patch.object(compaction, "packed", packed)


def block_that_is_not_read() -> AbstractContextManager[Any]:
    """A reader takes offsets that are not in the footer for none."""

    def without(self: RunReader, run: RunInfo, *_: Any) -> RunInfo:
        unread = isinstance(run.coverage, UnreadCoverage)
        return replace(run, coverage=Coverage()) if unread else run

    return patch.object(RunReader, "_with_coverage", without)


def block_of_another_run() -> AbstractContextManager[Any]:
    """A reader knows the blocks that it has read by their lengths."""

    def by_length(self: RunReader, run: RunInfo, *more: Any) -> RunInfo:
        if not isinstance(run.coverage, UnreadCoverage):
            return run
        length, known = run.coverage.block.length, self.__dict__.setdefault("by_length", {})
        if length not in known:
            known[length] = with_coverage(self, run, *more).coverage
        return replace(run, coverage=known[length])

    with_coverage = RunReader._with_coverage
    return patch.object(RunReader, "_with_coverage", by_length)


def checkpoint_without_the_blocks() -> AbstractContextManager[Any]:
    """A checkpoint has the offsets that footers have, and takes the others for none."""

    def coverage(text: str | None, block: bytes | None, stored: str | None) -> Coverage | None:
        return in_row(text, None, None) or (Coverage() if block or stored else None)

    in_row = checkpoint._coverage
    return patch.object(checkpoint, "_coverage", coverage)


def one_name_for_both_kinds_of_footers() -> AbstractContextManager[Any]:
    """Of two versions one writes offsets into footers, one into blocks, under the same names."""
    bug, turns = ExitStack(), itertools.count()
    pack = compaction.packed
    some = patch.object(compaction, "packed", lambda one: pack(one) if next(turns) % 2 else one)
    bug.enter_context(some)
    cuts = property(lambda self: plan.digest(plan.json.dumps([plan.FORMAT, self.parts])))
    bug.enter_context(patch.object(plan.MergePlan, "cuts", cuts))
    return bug


def orphans_by_the_rows_that_win_now() -> AbstractContextManager[Any]:
    """A pack is an orphan if rows point elsewhere, whatever a run says that is written later."""
    return patch.object(orphans, "_beats", lambda winner, *_: winner["pack"] is not None)


def orphans_by_their_alerts_alone() -> AbstractContextManager[Any]:
    """A pack is an orphan if the rows of all its alerts win over its own, whatever they show."""

    def by_place(rows: pa.Table, spec: PackSpec) -> dict[tuple, dict[str, Any]]:
        return {key: row | {"crc32": 0} for key, row in places(rows, spec).items()}

    places = orphans.by_place
    bug = ExitStack()
    bug.enter_context(patch.object(orphans, "by_place", by_place))
    bug.enter_context(patch.object(orphans, "_digests", lambda *_, **__: {b"any"}))
    return bug


def merge_that_locates_before_it_writes() -> AbstractContextManager[Any]:
    """The run comes before the pack into which it points."""

    def merge(self: ImageMerger, sources: Sequence[ObjectInfo]) -> Merge:
        late: list[Pack] = []
        with patch.object(self, "_store", late.append):
            done = real(self, sources)
        for pack in late:
            self._objects.put(pack.key, memoryview(pack.data), pack.sha256)
        return done

    real = ImageMerger.merge
    return patch.object(ImageMerger, "merge", merge)


def merged_packs_deleted_by_their_names() -> AbstractContextManager[Any]:
    """What a merged pack names is deleted, whether or not readers get it from there by now."""
    bug = ExitStack()
    bug.enter_context(patch.object(ImageMerger, "is_read", lambda *_: False))
    bug.enter_context(
        patch.object(ImageMerger, "delete", lambda self, info: self._objects.delete(info.key))
    )
    return bug


def merge_without_a_message() -> AbstractContextManager[Any]:
    """A merged pack lacks a message, and the proof of what it holds is left out."""

    def in_order(pages: Sequence[Any]) -> list[Any]:
        return ordered(pages)[1:] or ordered(pages)

    ordered = merged_images._in_order
    bug = ExitStack()
    bug.enter_context(patch.object(merged_images, "_in_order", in_order))
    bug.enter_context(patch.object(ImageMerger, "is_read", lambda *_: False))
    bug.enter_context(
        patch.object(ImageMerger, "delete", lambda self, info: self._objects.delete(info.key))
    )
    return bug


def _settled(runs: list[Run], now: datetime, grace: timedelta) -> set[str]:
    """Names of the inputs of those `runs` that have been complete for `grace`."""
    return inputs_of(run for run in runs if all(part.age(now) >= grace for part in run))


def _collecting(
    unneeded: Callable[[Table, datetime, timedelta], Iterator[RunInfo]],
) -> AbstractContextManager[Any]:
    class Planted(GarbageCollector):
        def unneeded(self) -> Iterator[RunInfo]:
            return unneeded(self._table, self._now, self._grace)

    return patch.object(compaction, "GarbageCollector", Planted)


# By bug the actors and the faults among which it shows; without them the seed draws both. Beside
# each, how many of 20 seeds find it (`python -m tests.store.simulation --planted 20`).
PLANTED: dict[Bug, Scenario] = {
    sweep_that_trusts_its_listing: Scenario(  # 6
        actors=("writer", "compactor", "sweeper", "sweeper", "sweeper"), faults=Faults(omit=0.1)
    ),
    merged_run_on_its_inputs_level: Scenario(),  # 0; one of the first 31
    purge_that_deletes_before_it_has_read_back: Scenario(  # 16
        actors=("writer", "letters", "letters", "letters"), faults=Faults(lost=0.3)
    ),
    replication_that_sends_the_run_before_its_pack: Scenario(),  # 4
    merge_that_skips_a_row: Scenario(),  # 10
    coverage_forgotten: Scenario(),  # 20
    name_without_the_cuts: Scenario(),  # 20
    memory_that_knows_one_merge_only: Scenario(),  # 20
    checkpoint_in_place_of_a_listing: Scenario(),  # 3
    checkpoint_with_the_coverage_of_another_run: Scenario(),  # 20
    block_with_the_offsets_of_one_input: Scenario(),  # 10 of 12
    block_that_is_not_read: Scenario(),  # 10 of 12
    block_of_another_run: Scenario(),  # 6 of 12
    checkpoint_without_the_blocks: Scenario(),  # 7 of 12
    one_name_for_both_kinds_of_footers: Scenario(  # 2 of 12
        actors=("writer", "writer", *4 * ["compactor"]), faults=Faults(late=0.1)
    ),
    orphans_by_the_rows_that_win_now: Scenario(actors=ORPHANS[:5]),
    orphans_by_their_alerts_alone: Scenario(actors=ORPHANS[:5]),
    merge_that_locates_before_it_writes: Scenario(actors=MERGES),
    merged_packs_deleted_by_their_names: Scenario(actors=MERGES),
    merge_without_a_message: Scenario(actors=MERGES),
}


def finds(seed: int, bug: Bug) -> bool:
    """Whether a seed finds a bug."""
    with bug():
        return run(seed, PLANTED[bug]).failure is not None
