import json

import pytest

from stampede_bench.storage.pools import (
    CODED,
    COPIES,
    SIZES,
    UNIT,
    allocated,
    expected,
    placement_commands,
    pool_commands,
)

TWO, THREE = COPIES


@pytest.mark.nightly
@pytest.mark.usefixtures("ceph_packages")
def test_each_size_takes_on_each_pool_what_is_computed(measure) -> None:
    found = measure("layout", pool="ec")
    assert {subject for subject, _ in found} == {
        f"objects of {size / 1e6:,.3g} MB on 3 OSDs" for size in SIZES
    }
    for size in SIZES[1:]:  # few of the smallest are written here, and the index takes as much
        for pool in (CODED, *COPIES):
            subject = f"objects of {size / 1e6:,.3g} MB on 3 OSDs"
            figure = found[subject, f"bytes on disks, {pool.title}"]
            assert figure.ratio == pytest.approx(1, abs=0.05), figure
    cpu = [figure for figure in found.values() if figure.unit == "ms"]
    assert cpu
    assert all(figure.value > 0 and figure.rival.value > 0 for figure in cpu)


@pytest.mark.parametrize("name", ["bluestore_allocated", "allocated"])
def test_the_counter_of_both_versions_of_ceph_is_read(name: str) -> None:
    dump = {"bluestore": {name: 8192, "bluestore_stored": 5}, "osd": {"allocated": 1}}
    assert allocated(json.dumps(dump)) == 8192


def test_chunks_fill_stripes_and_copies_fill_units() -> None:
    assert expected(1, TWO) == 2 * UNIT
    assert expected(15_000, THREE) == 3 * 4 * UNIT
    assert expected(1, CODED) == 3 * UNIT
    assert expected(2 * UNIT + 1, CODED) == 2 * 3 * UNIT
    assert expected(64 << 20, CODED) == 3 * (32 << 20)


def test_a_pool_is_made_with_its_chunks_or_copies() -> None:
    profile, create = pool_commands(CODED)
    assert {"k=2", "m=1", "crush-failure-domain=osd"} < {*profile}
    assert profile[3] == create[-1]
    assert create[-2] == "erasure"
    create, size = pool_commands(THREE)
    assert create[-1] == "replicated"
    assert size[3:] == (create[3], "size", "3")


def test_a_placement_puts_data_alone_into_the_pool() -> None:
    for command in placement_commands(CODED):
        assert "--placement-id=ec" in command
    zone = placement_commands(CODED)[1]
    assert {part.partition("=")[0] for part in zone if "ec.data" in part} == {"--data-pool"}
