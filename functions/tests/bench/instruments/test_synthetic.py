from random import Random

import pyarrow.compute as pc
import pytest

from stampede.store.objects.memory import MemoryObjects
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, TableSpec
from stampede.store.tables.table import Table
from stampede_bench.instruments import synthetic


@pytest.mark.parametrize(
    ("flushes", "levels"),
    [(1, [0]), (7, [0] * 7), (8, [1]), (9, [1, 0]), (64 * 3 + 8 + 2, [2, 2, 2, 1, 0, 0])],
)
def test_synthetic_runs_are_those_of_compaction(flushes: int, levels: list[int]) -> None:
    made = synthetic.shape(flushes, 8)
    assert [run.level for run in made] == levels
    assert sum(run.flushes for run in made) == flushes
    assert [run.first for run in made] == [
        sum(run.flushes for run in made[:n]) for n in range(len(made))
    ]


@pytest.mark.parametrize("spec", [CUTOUTS, DETECTIONS], ids=lambda spec: spec.name)
def test_a_synthetic_table_can_be_read(spec: TableSpec) -> None:
    objects, alerts = MemoryObjects(), 9 * synthetic.FLUSH * 8
    # Parts of one slice each, so that runs are cut.
    stored = synthetic.fill(objects, spec, alerts, 8, 1)
    table = Table(objects, spec, threads=1)
    parts = table.runs()
    assert stored == sum(info.size for info in objects.list(""))
    assert {part.name.level for part in parts} == {1, 2}
    per_alert = 3 if spec is CUTOUTS else synthetic.POINTS
    assert sum(part.rows for part in parts) == alerts * per_alert
    assert len(table.coverage()) == alerts
    distinct = pc.count_distinct(table.lookup([part.first for part in parts])[spec.leading]).as_py()
    assert distinct == len({part.first for part in parts})
    chance = Random(1)
    for _ in range(20):
        one = synthetic.random_id(spec, alerts, chance)
        rows = table.lookup([one])
        assert rows.num_rows >= 1
        assert set(rows[spec.leading].to_pylist()) == {one}
