"""compact: merges small runs into larger ones, packs, raw alerts, and objects of dead letters.

It keeps no state: a pass lists the runs, merges those that are due, writes a checkpoint if many are
new, and may die at any time. Several pods may make passes at once: they share the merges.
"""

import random
import time
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from stampede.config.settings import Settings
from stampede.deadletters.merge import merge_letters
from stampede.errors import StampedeError
from stampede.handlers.merges.merges import Merges
from stampede.handlers.moved_points import MovedPoints
from stampede.store.compaction.compact import Policy, Report, compact
from stampede.store.integrity.dead_letter_offsets import DeadLetterOffsets
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects
from stampede.store.programmes.rights import Rights
from stampede.store.runs.run import RunInfo
from stampede.store.runs.schema import ALL_TABLES, CUTOUTS, TABLES, TableSpec
from stampede.store.tables.table import Table
from stampede.telemetry import store_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()


class Compactor:
    """Makes passes over every table, its dead letters, the packs and the raw alerts."""

    def __init__(self, settings: Settings) -> None:
        self._objects = objects = open_objects(settings)
        self._merges = Merges(settings, objects)
        letters = DeadLetterOffsets(objects)  # reads each object once
        self._steps = [
            *(
                (spec.name, partial(_compact, settings, objects, spec))
                for spec in ALL_TABLES.values()
            ),
            *((name, partial(_merge_letters, objects, letters, name)) for name in TABLES),
        ]

    def make_pass(self) -> None:
        """Make one pass.

        Each table is compacted even if another one cannot be; then the first error is raised.
        """
        failed: StampedeError | None = None
        for name, step in self._steps:
            try:
                step()
            except StampedeError as error:
                log.error("compacting failed", table=name, outcome=error.name, why=error.message)
                failed = failed or error
        failed = self._merges.run() or failed
        store_metrics.COMPACT_PASSES.labels(failed.name if failed else "done").inc()
        if failed:
            raise failed


def compact_tables(settings: Settings) -> None:
    """Make one pass. Raises as `Compactor.make_pass`."""
    Compactor(settings).make_pass()


def _compact(settings: Settings, objects: Objects, spec: TableSpec) -> None:
    begin = time.perf_counter()
    table = Table(objects, spec, rights=Rights.of(settings))
    try:
        policy = Policy(
            fanout=settings.fanout,
            run_rows=settings.run_rows,
            grace=timedelta(seconds=settings.grace_seconds),
            turn=random.randrange(1 << 16),  # other pods may compact the same table
        )
        if spec is CUTOUTS:
            policy = replace(policy, observe=MovedPoints(objects).mark)
        report = compact(table, datetime.now(UTC), policy)
        set_metrics(table, report)
        for key, why in report.damaged.items():
            log.error("damaged", table=spec.name, key=key, why=why)
        log.info(
            "compacted",
            table=spec.name,
            merged=report.merged,
            rows=report.rows_written,
            bytes_read=report.bytes_read,
            bytes_written=report.bytes_written,
            deleted=len(report.deleted),
            damaged=len(report.damaged),
            milliseconds=round(1000 * (time.perf_counter() - begin)),
        )
    finally:
        table.close()


def _merge_letters(objects: Objects, letters: DeadLetterOffsets, name: str) -> None:
    """Merge the dead letters of a table, then count them."""
    if merged := merge_letters(objects, name):
        log.info("merged dead letters", table=name, objects=merged)
    every, _ = letters.of_table(name).split()
    accepted = letters.accepted(name)
    store_metrics.DEAD_LETTERS.labels(name, "accepted").set(len(accepted))
    store_metrics.DEAD_LETTERS.labels(name, "refused").set(len(every - accepted))


def set_metrics(table: Table, report: Report) -> None:
    """Set the metrics: how much was rewritten, and what each level holds now."""
    name = table.spec.name
    store_metrics.COMPACTED_BYTES.labels(name).inc(report.bytes_written)
    store_metrics.COMPACTED_NEW_BYTES.labels(name).inc(report.bytes_new)
    store_metrics.DAMAGED_PARTS.labels(name).set(len(report.damaged))
    levels: dict[int, list[RunInfo]] = defaultdict(list)
    for part in table.runs():
        levels[part.name.level].append(part)
    # An emptied level shows 0, not its last value.
    for level in range(max(levels, default=0) + 1):
        runs = {part.name.run for part in levels[level]}
        store_metrics.RUNS.labels(name, level).set(len(runs))
        size = sum(part.object.size for part in levels[level])
        store_metrics.RUN_BYTES.labels(name, level).set(size)
