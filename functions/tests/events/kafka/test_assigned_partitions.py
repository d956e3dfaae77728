"""Which partition a message is of."""

from typing import Any

import pytest

from stampede.config.settings import Settings
from stampede.events.delivery.in_flight import RecordsInFlight
from stampede.events.delivery.outlet import Outlet
from stampede.events.kafka.assigned_partitions import AssignedPartitions
from stampede.events.kafka.source_health import SourceHealth
from stampede.events.kafka.topic_ids import Answer, TopicIds


class Place:
    """A message, or a partition of Kafka's client, as far as it is looked at."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def topic(self) -> str:
        return "alerts"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


class Client:
    """Assigns one partition as soon as it subscribes."""

    def subscribe(self, topics: list[str], on_assign: Any, **_: Any) -> None:
        from confluent_kafka import TopicPartition

        on_assign(self, [TopicPartition("alerts", 0)])

    def committed(self, partitions: list[Any], timeout: float) -> list[Any]:
        from confluent_kafka import TopicPartition

        return [TopicPartition(each.topic, each.partition, 90) for each in partitions]

    def incremental_assign(self, partitions: list[Any]) -> None:
        pass

    def seek(self, partition: Any) -> None:
        pass


@pytest.fixture
def assigned(monkeypatch: pytest.MonkeyPatch) -> AssignedPartitions:
    monkeypatch.setattr(TopicIds, "wait", lambda self, topics, seconds=0: Answer({"alerts": "A"}))
    settings = Settings(topics="alerts")
    made = AssignedPartitions(
        settings,
        RecordsInFlight(10, 1000),
        [Outlet("cutouts", ["cutouts"], None)],  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        SourceHealth(),
        TopicIds(settings),
    )
    made.subscribe(Client(), {"alerts"})  # type: ignore[arg-type]
    return made


def test_records_that_kafka_lost_after_they_were_taken_are_not_dropped(
    assigned: AssignedPartitions,
) -> None:
    """Nobody else can take them any more."""
    before = assigned.of(Place(95))  # type: ignore[arg-type]
    assert before is not None
    before.next = 96
    after = assigned.of(Place(0))  # type: ignore[arg-type]
    assert after is not before
    assert not before.left


def test_records_of_a_topic_that_was_made_anew_are_dropped(assigned: AssignedPartitions) -> None:
    before = assigned.of(Place(95))  # type: ignore[arg-type]
    assert before is not None
    assigned.learn(Client(), Answer({"alerts": "B"}))  # type: ignore[arg-type]
    assert before.left
