import pytest


@pytest.mark.usefixtures("ceph_packages")
def test_replicate_has_a_ratio_for_each_direction(measure) -> None:
    found = measure("replicate")
    assert {subject for subject, _ in found} == {
        f"{direction}, {scheme}" for direction in ("push", "pull") for scheme in ("HTTP", "HTTPS")
    }
    for subject in {subject for subject, _ in found}:
        assert found[subject, "150 ms"].must is not None
        assert found[subject, "150 ms"].ratio > 0
