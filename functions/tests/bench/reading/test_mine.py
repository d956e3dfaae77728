import pytest


@pytest.mark.nightly
@pytest.mark.usefixtures("ceph_packages")
def test_mine_measures_both_surveys(measure) -> None:
    found = measure("mine")
    assert [name.partition(",")[0] for _, name in found] == ["ZTF", "ZTF", "LSST", "LSST"]
    assert all(figure.value > 0 for figure in found.values())
