import pytest

from stampede_bench.storage.layout import OPERATIONS, SIZES


@pytest.mark.nightly
@pytest.mark.usefixtures("ceph_packages")
def test_layout_measures_every_size_operation_and_layout(measure) -> None:
    found = measure("layout")
    for size in SIZES:
        for operation in OPERATIONS:
            subject = f"items of {size // 1000} KB, {operation}"
            ways = {name for of, name in found if of == subject}
            assert {"a synced file each", "an S3 object each"} < ways
            assert any(way.startswith("packs of") for way in ways)
    judged = [figure for figure in found.values() if figure.requirement or figure.target]
    assert {figure.subject for figure in judged} == {"items of 15 KB, written in turn"}
    (cpu,) = (figure for figure in judged if figure.requirement)
    assert cpu.requirement.ratio
    assert cpu.unit == "ms/item"
