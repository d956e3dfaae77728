"""The benchmarks of the store, in their smallest form on a real Ceph: figures, not how large."""

from random import Random

import pyarrow.compute as pc
import pytest

from stampede.store.memory import MemoryObjects
from stampede.store.schema import CUTOUTS, DETECTIONS, TableSpec
from stampede.store.tables import Table
from stampede_bench import synthetic
from stampede_bench.counting_store import CountingStore
from stampede_bench.images import CUTOUT_BYTES, images, store
from stampede_bench.layout import OPERATIONS, SIZES
from stampede_bench.pack_size import named
from stampede_bench.space import erasure_coded


@pytest.mark.usefixtures("ceph_packages")
def test_layout_measures_every_size_operation_and_way(measure) -> None:
    found = measure("layout")
    for size in SIZES:
        for operation in OPERATIONS:
            subject = f"items of {size // 1000} KB, {operation}"
            ways = {name for of, name in found if of == subject}
            assert {"a synced file each", "an S3 object each"} < ways
            assert any(way.startswith("packs of") for way in ways)
    judged = [figure for figure in found.values() if figure.aim]
    assert not judged or {figure.subject for figure in judged} == {"items of 15 KB, write"}


@pytest.mark.usefixtures("ceph_packages")
def test_limit_and_pack_size_stand_beside_what_ceph_does(measure) -> None:
    (fastest,) = (figure for figure in measure("limit").values() if figure.must)
    assert fastest.must.ratio
    assert 0 < fastest.ratio < 2
    found = measure("pack-size")
    for size in (4096, 1 << 20, 64 << 20):
        assert found[f"objects of {named(size)}", "acknowledged each"].value > 0
        assert found[f"objects of {named(size)}", "acknowledged each, p50"].value > 0
    (justified,) = (figure for figure in found.values() if figure.must)
    assert 0 < justified.ratio <= 1


@pytest.mark.usefixtures("ceph_packages")
def test_lightcurve_counts_what_an_update_writes(measure) -> None:
    found = measure("lightcurve")
    few, many = (
        {name: figure for (of, name), figure in found.items() if of.endswith(what)}
        for what in ("what is new", "sent again")
    )
    assert few["updates"].value > 0
    assert few["updates"].must.ratio
    assert many["updates"].must is None
    assert few["appended"].value < many["appended"].value
    for figures in (few, many):
        (night, years) = (value for name, value in figures.items() if name.startswith("written in"))
        assert figures["appended"].value < night.value < years.value
        assert night.rival.value == 500


@pytest.mark.usefixtures("ceph_packages")
def test_growth_needs_the_requests_that_its_model_says(measure) -> None:
    found = measure("growth")
    requests = [figure for (_, name), figure in found.items() if name == "requests of a look-up"]
    assert len(requests) == 6
    for figure in requests:
        assert figure.value == pytest.approx(figure.rival.value, rel=0.3)
    assert 0.3 < found["bytes rewritten per byte stored", "after 64 flushes"].value < 2.5


def test_space_is_little_more_than_the_cutouts(measure) -> None:
    found = measure("space")
    judged = [figure for figure in found.values() if figure.must]
    assert len(judged) == 2
    assert all(1 < figure.ratio < 1.2 for figure in judged)  # a pack of three alerts


@pytest.mark.parametrize(
    ("sizes", "unit", "expected"),
    [
        ([1], 4096, 6 * 4096),  # one stripe, however little is in it
        ([16384], 4096, 6 * 4096),
        ([16385], 4096, 12 * 4096),
        ([15_000], 65536, 6 * 65536),
        ([4 << 20, (4 << 20) + 1], 4096, 2 * (6 << 20) + 6 * 4096),
        ([], 4096, 0),
    ],
)
def test_erasure_coding_fills_up_stripes_and_units(sizes, unit: int, expected: int) -> None:
    assert erasure_coded(sizes, unit) == expected


@pytest.mark.parametrize(
    ("flushes", "levels"),
    [(1, [0]), (7, [0] * 7), (8, [1]), (9, [1, 0]), (64 * 3 + 8 + 2, [2, 2, 2, 1, 0, 0])],
)
def test_runs_are_what_compaction_leaves(flushes: int, levels: list[int]) -> None:
    made = synthetic.shape(flushes, 8)
    assert [run.level for run in made] == levels
    assert sum(run.flushes for run in made) == flushes
    assert [run.first for run in made] == [
        sum(run.flushes for run in made[:n]) for n in range(len(made))
    ]


@pytest.mark.parametrize("spec", [CUTOUTS, DETECTIONS], ids=lambda spec: spec.name)
def test_a_made_up_table_is_a_table(spec: TableSpec) -> None:
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
    whole = pc.count_distinct(table.lookup([part.first for part in parts])[spec.leading]).as_py()
    assert whole == len({part.first for part in parts})
    chance = Random(1)
    for _ in range(20):
        one = synthetic.random_id(spec, alerts, chance)
        rows = table.lookup([one])
        assert rows.num_rows >= 1
        assert set(rows[spec.leading].to_pylist()) == {one}


def test_a_pack_written_again_wins_in_the_index() -> None:
    objects = MemoryObjects()
    table = Table(objects, CUTOUTS, threads=1)
    keys = [store(objects, table, images(0, 6, CUTOUT_BYTES, night), night) for night in (1, 2)]
    table.refresh()
    assert set(table.lookup([0, 1])["pack"].to_pylist()) == {keys[1]}


def test_requests_and_bytes_are_counted() -> None:
    counted = CountingStore(MemoryObjects())
    counted.put("a", b"12345")
    counted.put_stream("b", [b"12", b"3"])
    assert counted.get("a", 1, 2) == b"23"
    assert counted.head("a").size == 5
    assert [info.key for info in counted.list("")] == ["a", "b"]
    counted.delete("a")
    assert counted.requests == {"put": 3, "get": 1, "head": 1, "list": 1, "delete": 1}
    assert (counted.bytes["put"], counted.bytes["get"]) == (8, 2)
    counted.clear()
    assert not counted.requests
