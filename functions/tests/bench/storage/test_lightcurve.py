import pytest


@pytest.mark.usefixtures("ceph_packages")
def test_lightcurve_counts_the_bytes_of_an_update(measure) -> None:
    found = measure("lightcurve")
    few, many = (
        {name: figure for (of, name), figure in found.items() if of.endswith(subject)}
        for subject in ("what is new", "sent again")
    )
    assert few["updates"].value > 0
    assert few["updates"].must.ratio
    assert many["updates"].must is None
    assert few["appended"].value < many["appended"].value
    for figures in (few, many):
        (night, years) = (value for name, value in figures.items() if name.startswith("written in"))
        assert figures["appended"].value < night.value < years.value
        assert night.rival.value == 500
