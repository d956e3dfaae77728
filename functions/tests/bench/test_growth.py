import pytest


@pytest.mark.usefixtures("ceph_packages")
def test_growth_takes_the_requests_of_its_model(measure) -> None:
    found = measure("growth")
    requests = [figure for (_, name), figure in found.items() if name == "requests of a look-up"]
    assert len(requests) == 6
    for figure in requests:
        assert figure.value == pytest.approx(figure.rival.value, rel=0.3)
    assert 0.3 < found["bytes rewritten per byte stored", "after 64 flushes"].value < 2.5
