"""What `stampede doctor` says of the lag if Kafka does not say what was read."""

from typing import Any

import pytest

from stampede.config.settings import Settings
from stampede.doctor import kafka
from stampede.doctor.finding import Installation


class Closed:
    """A Kafka that does not let us ask for offsets of groups."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> "Closed":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def watermarks(self, topics: list[str]) -> dict[tuple[str, int], tuple[int, int]]:
        return {(topic, 0): (0, 10) for topic in topics}

    def topic_ids(self, topics: list[str]) -> dict[str, str]:
        return {}

    def committed(self, *_: Any) -> dict[tuple[str, int], int | None]:
        return {}


def test_a_group_that_cannot_be_asked_for_has_not_read_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka, "KafkaTopics", Closed)
    settings = Settings(kafka="kafka:9092", topics="alerts")
    found = [finding.fault for finding in kafka.lag(Installation(settings, {}, installed=False))]
    assert len(found) == 2
    assert all(fault.startswith("Kafka does not say what the group") for fault in found)
