"""reconcile derives positions again: of points stored before the table, and of a lost run."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from stampede.alerts.columns import DETECTION
from stampede.config.settings import Settings
from stampede.handlers.reconcile import positions
from stampede.handlers.reconcile.positions import derive_positions
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.store.compaction.compact import Policy, compact
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.runs.schema import DETECTIONS, POSITIONS
from stampede.store.tables.range_lookup import Ranges, rows_in
from stampede.store.tables.table import Table
from tests.support.read.read_service import point
from tests.support.store.stored_packets import store, ztf_with_images


def keys(objects, prefix: str) -> list[str]:
    return [info.key for info in objects.list(prefix)]


def rows_of(objects) -> list[dict]:
    """All rows of `positions`."""
    table = Table(objects, POSITIONS, threads=1)
    everything = Ranges(np.array([0]), np.array([1 << 62]))
    return [row for rows in rows_in(table, everything) for row in rows.to_pylist()]


def points(batches: int) -> MemoryObjects:
    """Points of 30 objects without positions, each object in every batch."""
    objects = MemoryObjects()
    table = Table(objects, DETECTIONS)
    for batch in range(batches):
        made = [
            point(f"o{n % 30:02}", "lsst", 1000 * batch + n + 1, 60000.0 + n, ra=n % 30, dec=1.0)
            for n in range(6000)
        ]
        rows = pa.Table.from_pylist(made, DETECTION)
        table.append(rows, Coverage.of({("t", 0): [batch]}))
    return objects


def test_a_lost_run_of_positions_is_derived_again(tmp_path) -> None:
    settings = Settings(store=f"file://{tmp_path}", reconcile="positions")
    store(settings, [ztf_with_images(n, 60000.0) for n in (1, 2)])
    objects = open_objects(settings)
    good = rows_of(objects)
    assert good
    assert Reconciler(settings).run() == Counter()
    for key in keys(objects, "tables/positions/"):
        objects.delete(key)
    assert Reconciler(settings).run(repair=False) == {"without-positions": 1}
    assert not keys(objects, "tables/positions/")
    assert Reconciler(settings).run() == {"without-positions": 1}
    assert rows_of(objects) == good
    assert Reconciler(settings).run() == Counter()


def test_a_merged_run_is_read_in_chunks_and_counts_each_object_once(monkeypatch) -> None:
    monkeypatch.setattr(positions, "GROUPS", 1)
    objects = points(batches=2)
    table = Table(objects, DETECTIONS)
    later = datetime.now(UTC) + timedelta(days=1)
    compact(table, later, Policy(fanout=2, run_rows=3000, grace=timedelta(0)))
    assert all(derived for _, derived in derive_positions(objects, repair=True))
    assert Table(objects, POSITIONS).coverage() == Coverage.of({("t", 0): [0, 1]})
    expected = {
        f"o{n:02}": len({1000 * b + k for b in (0, 1) for k in range(n, 6000, 30)})
        for n in range(30)
    }
    assert {row["object_id"]: row["detections"] for row in rows_of(objects)} == expected


def test_a_damaged_part_of_points_does_not_count() -> None:
    objects = points(batches=2)
    key = keys(objects, "tables/detections/")[0]
    data = objects.get(key)
    objects.delete(key)
    objects.put(key, data[:100] + bytes([data[100] ^ 1]) + data[101:])
    assert sorted(derived for _, derived in derive_positions(objects, repair=True)) == [False, True]
    assert len(Table(objects, POSITIONS).coverage()) == 1
