import pytest


@pytest.mark.nightly
@pytest.mark.usefixtures("ceph_packages")
def test_cone_measures_a_small_and_a_large_table(measure) -> None:
    found = measure("cone")
    assert all(figure.value > 0 for figure in found.values())
    assert {figure.unit for figure in found.values()} == {"us", "bytes", "ms", "rows/s"}
    assert sum(figure.requirement is not None for figure in found.values()) == 5
