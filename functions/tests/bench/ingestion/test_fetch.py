import pytest


@pytest.mark.nightly
@pytest.mark.usefixtures("ceph_packages", "kafka_packages")
def test_fetch_counts_what_kafka_sends(measure) -> None:
    """About once, or twice; of so few alerts other bytes are a large part."""
    found = measure("fetch")
    subjects = {subject for subject, _ in found}
    assert len(subjects) == 4
    for subject in subjects:
        assert found[subject, "CPU of all, fetched once"].value > 0
        once = found[subject, "Kafka's bytes, fetched once"].value
        assert found[subject, "Kafka's bytes, fetched for each table"].value > 1.5 * once
