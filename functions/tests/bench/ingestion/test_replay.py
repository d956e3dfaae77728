import pytest

from stampede_bench.ingestion import replay


@pytest.mark.nightly
@pytest.mark.usefixtures("ceph_packages", "kafka_packages")
def test_each_survey_is_sent_beside_a_bare_producer(measure, monkeypatch) -> None:
    """Each round begins with the other way: the second one finds a warmer Kafka."""
    order = []

    def noted(name: str) -> None:
        work = getattr(replay, name)
        monkeypatch.setattr(replay, name, lambda *args: [order.append(name), work(*args)][1])

    noted("bare")
    noted("send")
    found = measure("replay")
    assert order == 2 * ["bare", "send", "bare", "send", "send", "bare"]
    assert len({subject for subject, _ in found}) == 2
    for (_, name), figure in found.items():
        assert figure.value > 0
        assert figure.rival.value > 0
        assert (figure.requirement is not None) == (name == "sent")
