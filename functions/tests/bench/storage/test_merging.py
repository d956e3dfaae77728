import pytest


@pytest.mark.nightly
def test_merged_packets_take_much_less(measure) -> None:
    found = measure("merging")
    lsst = {name: figure for (subject, name), figure in found.items() if "LSST" in subject}
    assert all(figure.met is not False for figure in found.values())
    assert lsst["merged by month"].value < lsst["merged by night"].value < lsst["as stored"].value
    assert lsst["packs"].ratio < 0.3
