"""The order of the collector's two questions, wherever another compactor may come between.

A listing that omits both inputs of a half-written run, and rows without offsets: then nothing else
protects the rows of the part that is not written yet (docs/store.md).
"""

from datetime import UTC, datetime, timedelta

import pytest

from stampede.store.compaction import compact as compaction
from stampede.store.compaction.compact import Policy, compact
from stampede.store.compaction.garbage_collection import GarbageCollector
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import find
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.run import Run, live, unlisted
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from tests.support.store.rows import many, object_ids
from tests.support.store.watched_objects import Omitting, Watched

START = datetime(2026, 11, 20, tzinfo=UTC)
ROWS = many(100)


def rows_after_an_interruption(number: int) -> tuple[int, int]:
    """Rows that readers find if another compactor works before request `number` of a collector.

    Also the number of requests that the collector made.
    """
    merged = MemoryObjects(lambda: START)
    inputs = [appended(merged, range(0, 100, 2)), appended(merged, range(1, 100, 2))]
    compact(
        Table(merged, DETECTIONS, threads=1), START, Policy(run_rows=50, slice_rows=50, fanout=2)
    )
    parts = Table(merged, DETECTIONS, threads=1).listed()
    (first, rows), (second, _) = [(part.key, part.rows) for part in parts if part.inputs]
    store = MemoryObjects(lambda: START)
    for key in (*inputs, first):
        store.put(key, merged.get(key))
    appended(store, range(rows))  # the rows of the first part once more, as after a repeated batch

    def complete(request: int) -> None:
        if request == number and find(store, first):
            store.put(second, merged.get(second))
            for key in inputs:
                store.delete(key)

    watched = Watched(Omitting(store, *inputs), complete)
    compact(Table(watched, DETECTIONS, threads=1), START, Policy(fanout=1000, grace=timedelta(0)))
    found = Table(store, DETECTIONS, threads=1).lookup(object_ids(ROWS))
    return found.num_rows, len(watched.calls)


def appended(store: MemoryObjects, rows: range) -> str:
    return Table(store, DETECTIONS, threads=1).append(ROWS.take(list(rows)), Coverage())


class WrongOrder(GarbageCollector):
    """Asks whether the run is half-written, and then whether its inputs are gone."""

    def _abandoned(self, run: Run) -> bool:
        objects, table = self._table.objects, self._table.spec.name
        lost = [key for key in unlisted(run, table) if find(objects, key) is None]
        needed = [name for name in run[0].inputs if not self._merged_in_another_run(name)]
        there = [name for name in needed if self._exists(name)]
        others = self.sound(live(self._parts))
        return (
            bool(lost)
            and not there
            and self.proof.hold(run, others, every_row=True) is True
            and all(self.proof.present(other) for other in others)
        )


def test_no_row_is_lost_wherever_another_compactor_comes_between() -> None:
    _, requests = rows_after_an_interruption(-1)
    assert requests > 5
    assert {rows_after_an_interruption(number)[0] for number in range(requests)} == {100}


def test_the_wrong_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "GarbageCollector", WrongOrder)
    _, requests = rows_after_an_interruption(-1)
    assert min(rows_after_an_interruption(number)[0] for number in range(requests)) < 100
