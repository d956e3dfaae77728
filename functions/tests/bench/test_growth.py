import pytest


@pytest.mark.usefixtures("ceph_packages")
def test_growth_takes_the_requests_of_its_model(measure) -> None:
    found = measure("growth")
    requests = [figure for (_, name), figure in found.items() if name == "requests of a look-up"]
    assert len(requests) == 6
    for figure in requests:
        assert figure.value == pytest.approx(figure.rival.value, rel=0.3)
    assert 0.3 < found["bytes rewritten per byte stored", "after 64 flushes"].value < 2.5
    starts = [figure for (_, name), figure in found.items() if name.startswith("until it can")]
    assert len(starts) == 2
    assert all(figure.met for figure in starts)
    requests = [figure for (_, name), figure in found.items() if name == "requests"]
    assert all(figure.value == 3 for figure in requests)  # two listings, one checkpoint
