import pytest


@pytest.mark.usefixtures("ceph_packages", "kafka_packages")
def test_each_survey_is_sent_beside_a_bare_producer(measure) -> None:
    found = measure("replay")
    assert len({subject for subject, _ in found}) == 2
    for (_, name), figure in found.items():
        assert figure.value > 0
        assert figure.rival.value > 0
        assert (figure.must is not None) == (name == "sent")
