import pytest

from stampede.store.objects.memory import MemoryObjects
from stampede.store.runs.schema import CUTOUTS
from stampede.store.tables.table import Table
from stampede_bench.reading.images import CUTOUT_BYTES, images, store


@pytest.mark.nightly
def test_the_index_points_to_the_latest_pack() -> None:
    objects = MemoryObjects()
    table = Table(objects, CUTOUTS, threads=1)
    keys = [store(objects, table, images(0, 6, CUTOUT_BYTES, night), night) for night in (1, 2)]
    table.refresh()
    assert set(table.lookup([0, 1])["pack"].to_pylist()) == {keys[1]}
