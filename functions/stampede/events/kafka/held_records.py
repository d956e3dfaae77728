"""Records that were taken from Kafka and whose topic is not proven yet.

A topic may be deleted and made anew under its name at any moment, and Kafka's client goes on with
the new one by itself. So a record is held until Kafka says, after the record was fetched, that
the topic has still the id that it had before its partition was begun. No id is ever used twice:
then the record is of that topic. docs/adr/0058-proven-topics.md has the argument.
"""

import time
from collections.abc import Collection
from typing import NamedTuple, Protocol

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from stampede.errors import SetupError
from stampede.events.cloudevents.kafka_record import Record
from stampede.events.delivery.dispatcher import Dispatcher
from stampede.events.delivery.in_flight import AssignedPartition, RecordsInFlight
from stampede.events.kafka.topic_ids import Answer, TopicIds
from stampede.telemetry.logs import get_logger

log = get_logger()

ASK_SECONDS = 0.1  # least time between two requests while records flow
IDLE_SECONDS = 3.0  # while none do: how soon a topic that was made anew is noticed
RESPONSE_SECONDS = 0.02  # a response is waited for so long; the next one is looked for later
POLL_SECONDS = 0.1
WATERMARK_SECONDS = 5.0


class Held(NamedTuple):
    """A record that was taken, or without one the end of a partition."""

    partition: AssignedPartition
    topic: str
    offset: int
    record: Record | None = None


class HeldRecords:
    """Holds records until their topics are proven.

    Parameters
    ----------
    topic_ids
        Asks Kafka.
    in_flight
        Counts the records, so that they are bounded.
    """

    def __init__(self, topic_ids: TopicIds, in_flight: RecordsInFlight) -> None:
        self._topic_ids = topic_ids
        self._in_flight = in_flight
        self._held: list[Held] = []
        self._asked_for = 0  # the first so many of them were taken before the last request
        self._asked = time.monotonic()
        self._cannot_ask = False  # the last time it could not be asked

    def hold(self, batch: list[Held]) -> None:
        """Hold what was just taken."""
        self._in_flight.count([held.record for held in batch if held.record])
        self._held += batch

    def seconds_to_wait(self) -> float:
        """How long to wait for more records at most: until what is held can be proven."""
        if not self._held:
            return IDLE_SECONDS
        if self._topic_ids.asking:
            return 0.0
        return max(0.0, self._asked + ASK_SECONDS - time.monotonic())

    @property
    def proven_soon(self) -> bool:
        """Whether there are held records, and Kafka is not late with its response."""
        late = self._topic_ids.asking and time.monotonic() - self._asked > ASK_SECONDS
        return bool(self._held) and not late and not self._cannot_ask

    def answer(self, topics: Collection[str], now: bool) -> Answer | None:
        """Ask Kafka for the ids of topics if it is time to, or if it is to be `now`.

        Returns a response that has come. Drops records of partitions that were given up: there may
        be no topic left to ask for.
        """
        self._drop_given_up()
        interval = ASK_SECONDS if self._held else IDLE_SECONDS
        due = time.monotonic() - self._asked >= interval
        at_once = now and self._held and not self._cannot_ask
        if (due or at_once) and not self._topic_ids.asking:
            self._asked = time.monotonic()
            self._cannot_ask = not self._topic_ids.ask(topics)
            if not self._cannot_ask:
                self._asked_for = len(self._held)
        return self._topic_ids.answer(RESPONSE_SECONDS if self._held else 0)

    def proven(self, response: Answer) -> list[Held]:
        """Remove what a response proves, and return it; what it refutes is dropped.

        Partitions of a topic that is gone are passed over from now on.
        """
        asked_for, self._asked_for = self._asked_for, 0
        proven, kept, dropped = [], [], []
        for number, held in enumerate(self._held):
            partition, topic = held.partition, held.topic
            gone = response.says_gone(topic, partition.topic_id)
            if gone and not (partition.passed_over or partition.left):
                partition.passed_over, partition.again_at = True, held.offset
            if partition.passed_over or partition.left:
                dropped.append(held)
            elif number >= asked_for or topic not in response.ids:
                kept.append(held)
            else:
                proven.append(held)
        self._held = kept
        self._uncount(dropped)
        return proven

    def drop(self) -> None:
        """Drop everything: the next consumer takes it again."""
        self._uncount(self._held)
        self._held = []

    def _drop_given_up(self) -> None:
        given_up = [held for held in self._held if held.partition.left]
        if given_up:
            asked_for = self._held[: self._asked_for]
            self._asked_for = sum(not held.partition.left for held in asked_for)
            self._held = [held for held in self._held if not held.partition.left]
            self._uncount(given_up)

    def _uncount(self, dropped: list[Held]) -> None:
        self._in_flight.drop([held.record for held in dropped if held.record])


class Partitions(Protocol):
    """The partitions of one Kafka client."""

    @property
    def topics(self) -> Collection[str]:
        """Topics whose ids are asked for."""

    def of(self, message: confluent_kafka.Message) -> AssignedPartition | None:
        """The partition of a message; None if the message is not to be taken."""

    def learn(self, consumer: confluent_kafka.Consumer, response: Answer) -> None:
        """Note what Kafka says of the topics."""

    def commit_beginnings(self, consumer: confluent_kafka.Consumer) -> None:
        """Commit what must be committed before the first record is delivered."""


class Intake:
    """Takes records from one Kafka client and begins their delivery once they are proven.

    Parameters
    ----------
    partitions
        Those of the client.
    held, in_flight
        Hold and count the records.
    dispatcher
        Delivers them.
    """

    def __init__(
        self,
        partitions: Partitions,
        held: HeldRecords,
        in_flight: RecordsInFlight,
        dispatcher: Dispatcher,
    ) -> None:
        self._partitions = partitions
        self._held = held
        self._in_flight = in_flight
        self._dispatcher = dispatcher

    def take(self, consumer: confluent_kafka.Consumer, most: int) -> None:
        """Take up to `most` records, if there are some. Raises `SetupError` if Kafka refuses."""
        # `poll` returns the first record at once; `consume` would wait for `most` or the timeout.
        first = consumer.poll(min(POLL_SECONDS, self._held.seconds_to_wait()))
        if first is None:
            return
        batch: list[Held] = []
        for message in [first, *(consumer.consume(most - 1, 0) if most > 1 else ())]:
            error = message.error()
            if error and error.code() != KafkaError._PARTITION_EOF:
                _warn(error)
            elif partition := self._partitions.of(message):
                batch.append(self._taken(consumer, partition, message))
        self._held.hold(batch)

    def deliver_proven(self, consumer: confluent_kafka.Consumer, now: bool) -> None:
        """Deliver the records whose topics are proven by a response of Kafka, if there is one."""
        response = self._held.answer(self._partitions.topics, now)
        if response is None:
            return
        self._partitions.learn(consumer, response)
        proven = self._held.proven(response)
        begun = self._in_flight.begin(
            [(held.partition, held.record) for held in proven if held.record]
        )
        for held in proven:
            if held.record is None:
                self._in_flight.reach(held.partition, held.offset)
        if proven:
            self._partitions.commit_beginnings(consumer)
            self._dispatcher.start(self._in_flight, begun)

    def _taken(
        self,
        consumer: confluent_kafka.Consumer,
        partition: AssignedPartition,
        message: confluent_kafka.Message,
    ) -> Held:
        """What is held of a message: nothing, if it is not for this partition any more."""
        topic, offset = message.topic() or "", message.offset() or 0
        if message.error():
            return Held(partition, topic, offset)
        with self._in_flight.lock:
            until = partition.until
            expected, partition.next = partition.next, offset + 1
            if until is not None and offset >= until:
                partition.next = until
                return Held(partition, topic, until)
        skipped = _skipped(consumer, expected, message)
        record = Record.of(message, partition.topic_id or None, skipped)
        return Held(partition, topic, offset, record)


def _skipped(
    consumer: confluent_kafka.Consumer, expected: int | None, message: confluent_kafka.Message
) -> int:
    """How many offsets before a message are no messages: control records of transactions, say.

    0 if retention may have deleted them while the source was behind.
    """
    offset = message.offset() or 0
    if expected is None or expected >= offset:
        return 0
    try:
        where = TopicPartition(message.topic() or "", message.partition() or 0)
        low, _ = consumer.get_watermark_offsets(where, WATERMARK_SECONDS)
    except KafkaException:
        return 0
    return offset - expected if low <= expected else 0


def _warn(error: KafkaError) -> None:
    if error.fatal() or error.code() == KafkaError._FATAL:  # that code alone is not `fatal()`
        raise SetupError(f"Kafka: {error.str()}")
    log.warning("kafka", error=error.name(), reason=error.str())
