import pytest


@pytest.mark.nightly
@pytest.mark.usefixtures("ceph_packages", "kafka_packages")
def test_recover_stores_all_and_refuses_nothing(measure) -> None:
    found = {name: figure for (_, name), figure in measure("recover").items()}
    assert found["drained"].value > 0
    assert found["drained"].rival.value == 300
    assert found["all in both tables, none a dead letter"].value == 60
