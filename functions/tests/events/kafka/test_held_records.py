"""Which records a response of Kafka proves."""

import time

import pytest

from stampede.config.settings import Settings
from stampede.events.cloudevents.kafka_record import Record
from stampede.events.delivery.in_flight import AssignedPartition, RecordsInFlight
from stampede.events.kafka.held_records import ASK_SECONDS, IDLE_SECONDS, Held, HeldRecords
from stampede.events.kafka.topic_ids import NONE, Answer, TopicIds


class Kafka(TopicIds):
    """Answers at once, or when it is told to."""

    def __init__(self) -> None:
        super().__init__(Settings())
        self.says: Answer | None = Answer({"alerts": "A"})
        self.asked = False
        self.can_ask = True

    @property
    def asking(self) -> bool:
        return self.asked

    def ask(self, topics) -> bool:
        begins, self.asked = self.can_ask and not self.asked, self.can_ask
        return begins

    def answer(self, seconds: float = 0) -> Answer | None:
        if not self.asked or self.says is None:
            return None
        self.asked = False
        return self.says


class Holding:
    """Records of two partitions that are held."""

    def __init__(self) -> None:
        self.kafka, self.in_flight = Kafka(), RecordsInFlight(100, 1 << 20)
        self.held = HeldRecords(self.kafka, self.in_flight)
        self.partition, self.other = AssignedPartition("A"), AssignedPartition("X")

    def hold(self, offset: int, topic: str = "alerts") -> None:
        record = Record(topic, 0, offset, None, None, (), b"12345")
        partition = self.partition if topic == "alerts" else self.other
        self.held.hold([Held(partition, topic, offset, record)])

    def proven(self) -> list[int]:
        """Offsets that are proven by a response to a question that is asked now."""
        response = self.held.answer({"alerts"}, now=True)
        return [each.offset for each in self.held.proven(response)] if response else []


@pytest.fixture
def holding() -> Holding:
    return Holding()


def test_a_record_is_proven_if_the_id_is_still_the_same(holding: Holding) -> None:
    holding.hold(5)
    assert (holding.in_flight.events, holding.in_flight.bytes) == (1, 5)
    assert holding.proven() == [5]
    assert holding.in_flight.events == 1, "it is being delivered"
    assert holding.proven() == []


def test_what_was_taken_after_the_question_waits_for_the_next(holding: Holding) -> None:
    holding.hold(5)
    holding.kafka.says = None
    assert holding.proven() == []
    holding.hold(6)
    holding.kafka.says = Answer({"alerts": "A"})
    assert holding.proven() == [5]
    assert holding.proven() == [6]


@pytest.mark.parametrize("before", ["A", NONE])
def test_nothing_of_another_topic_is_delivered(holding: Holding, before: str) -> None:
    holding.partition = AssignedPartition(before)
    holding.hold(5)
    holding.kafka.says = Answer({"alerts": "B"})
    assert holding.proven() == []
    assert (holding.in_flight.events, holding.in_flight.bytes) == (0, 0)
    # If the client cannot be sent to the beginning now, nothing that comes later may be committed.
    assert (holding.partition.passed_over, holding.partition.again_at) == (True, 5)


def test_a_kafka_without_ids_proves_nothing_and_holds_nothing_up(holding: Holding) -> None:
    holding.partition = AssignedPartition(NONE)
    holding.hold(5)
    holding.kafka.says = Answer({"alerts": NONE})
    assert holding.proven() == [5]


def test_records_of_a_topic_that_is_gone_are_passed_over_from_the_first(holding: Holding) -> None:
    for offset in (5, 6):
        holding.hold(offset)
    holding.hold(7, "others")
    holding.kafka.says = Answer({"others": "X"}, frozenset({"alerts"}))
    assert holding.proven() == [7]
    assert (holding.partition.passed_over, holding.partition.again_at) == (True, 5)
    assert holding.in_flight.events == 1


def test_a_topic_that_could_not_be_asked_for_waits(holding: Holding) -> None:
    holding.hold(5)
    holding.kafka.says = Answer({})
    assert holding.proven() == []
    holding.kafka.says = Answer({"alerts": "A"})
    assert holding.proven() == [5]


def test_records_of_a_partition_that_was_given_up_are_dropped(holding: Holding) -> None:
    holding.hold(5)
    holding.partition.left = True
    assert holding.proven() == []
    assert holding.in_flight.events == 0
    holding.partition.left = False
    holding.hold(6)
    holding.held.drop()
    assert (holding.in_flight.events, holding.proven()) == (0, [])


def test_records_that_were_given_up_are_dropped_where_no_topic_is_left_to_ask_for(
    holding: Holding,
) -> None:
    """As of a source whose topics are a pattern, once another one has all partitions."""
    holding.hold(5)
    holding.hold(6, "others")
    holding.partition.left = True
    assert holding.held.answer({"others"}, now=True) is not None
    assert (holding.in_flight.events, holding.in_flight.bytes) == (1, 5)
    holding.other.left = True
    assert holding.held.answer(set(), now=False) is None
    assert holding.in_flight.events == 0
    assert holding.held.seconds_to_wait() == IDLE_SECONDS


def test_what_was_asked_for_is_counted_without_what_was_given_up(holding: Holding) -> None:
    holding.kafka.says = None
    holding.hold(7, "others")
    holding.hold(5)
    assert holding.proven() == []
    holding.hold(6)
    holding.other.left = True
    holding.kafka.says = Answer({"alerts": "A"})
    assert holding.proven() == [5]
    assert holding.proven() == [6]


def test_a_question_that_cannot_be_asked_is_not_asked_all_the_time(holding: Holding) -> None:
    holding.hold(5)
    holding.kafka.can_ask = False
    assert holding.held.answer({"alerts"}, now=True) is None
    assert 0 < holding.held.seconds_to_wait() <= ASK_SECONDS
    assert not holding.held.proven_soon, "the client must be polled meanwhile"
    holding.kafka.can_ask = True
    assert holding.held.answer({"alerts"}, now=True) is None
    assert holding.held.seconds_to_wait() > 0
    time.sleep(ASK_SECONDS)
    assert holding.proven() == [5]
