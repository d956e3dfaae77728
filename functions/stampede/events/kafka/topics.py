"""What Kafka itself knows of topics, and of what groups have read of them.

That is the other side of the comparison that the ledger makes.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from stampede.config.settings import Settings
from stampede.errors import NoTopic, SetupError
from stampede.events import ALERT_FUNCTIONS
from stampede.events.cloudevents.kafka_record import Record
from stampede.events.kafka.errors import SILENT, reason
from stampede.events.kafka.login import KafkaLogin
from stampede.events.kafka.topic_ids import TopicIds, of_another_topic, read_note
from stampede.runtime.progress import telling_if_slow
from stampede.store.offsets.coverage import Interval, PartitionId
from stampede.telemetry.logs import get_logger

log = get_logger()
RESPONSE_SECONDS = 10.0
NEAR = 1000  # offsets that are read rather than jumped over: a jump costs a few requests
# A partition that is new, or whose leader moves, has no leader for a moment; nor has a group.
NO_LEADER = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
NO_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}
T = TypeVar("T")


class Commit(NamedTuple):
    """What a group has committed of a partition.

    Attributes
    ----------
    offset
        Everything below it is stored, but for the tables in `behind`. OFFSET_BEGINNING if the
        commit is of another topic of this name.
    behind
        By table the offset below which that has everything.
    """

    offset: int
    behind: Mapping[str, int]

    def of_table(self, table: str) -> int:
        """The offset below which a table has everything."""
        return self.behind.get(table, self.offset)


def commits(
    consumer: Consumer,
    partitions: Sequence[PartitionId],
    topic_ids: Mapping[str, str],
    seconds: float = RESPONSE_SECONDS,
) -> dict[PartitionId, Commit | None]:
    """What a consumer's group has committed of each (topic's name, partition).

    None if it has committed nothing. Kafka deletes commits with their topic, but a mirrored or
    restored cluster may have some of a topic with another id than in `topic_ids`.

    Raises
    ------
    KafkaException
        Kafka does not say it.
    """
    wanted = [TopicPartition(*partition) for partition in partitions]
    found: dict[PartitionId, Commit | None] = {}
    for each in consumer.committed(wanted, seconds):
        if each.error:
            raise KafkaException(each.error)
        commit = None
        if of_another_topic(each.metadata, topic_ids.get(each.topic)):
            commit = Commit(OFFSET_BEGINNING, {})
        elif each.offset >= 0:
            commit = Commit(each.offset, read_note(each.metadata)[1])
        found[each.topic, each.partition] = commit
    return found


def old_groups(group: str) -> dict[str, str]:
    """By table the group that KafkaSources and older releases read in."""
    return {table: f"{group}-{function}" for function, table in ALERT_FUNCTIONS.items()}


class KafkaTopics:
    """Reads what Kafka has of topics, as a consumer that joins no group and commits nothing.

    A context manager. Its methods raise `SetupError` if Kafka does not answer within `patience`
    seconds, or lacks a topic.
    """

    def __init__(self, settings: Settings, patience: float = RESPONSE_SECONDS) -> None:
        self._settings, self._patience = settings, patience
        self._errors: list[KafkaError] = []
        options: dict[str, Any] = {
            "bootstrap.servers": settings.kafka,
            # The client asks for its group's coordinator, and Kafka's ACLs may allow this group
            # alone: those of Rubin allow what begins with the user's name.
            "group.id": settings.group,
            "log_level": 0,  # otherwise librdkafka prints every refused connection on stderr
            "error_cb": self._errors.append,
        }
        fixed = {
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            # A fetch at the end of a partition waits this long, 500 ms by default, and the next
            # partition is read after it: `stampede audit` reads samples of each.
            "fetch.wait.max.ms": 10,
        }
        self._options = options | KafkaLogin(settings).options | fixed
        self._reading: PartitionId | None = None
        self._last: Record | None = None  # the first message at or after the offset `_asked`
        self._asked = 0

    @cached_property
    def _consumer(self) -> Consumer:
        try:
            return Consumer(self._options)
        except KafkaException as error:  # it has not connected yet: the option is unknown or wrong
            raise SetupError(f"wrong options of Kafka's client: {reason(error)}") from None

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Kafka's ids of these topics, by name; topics whose id cannot be had are left out."""
        for topic in topics:
            self.partitions(topic)  # raises an error for a topic that does not exist
        found = TopicIds(self._settings).wait(topics, self._patience).ids
        return {topic: topic_id for topic, topic_id in found.items() if topic_id}

    def names(self) -> frozenset[str]:
        """The names of all topics that Kafka shows."""
        try:
            with self._asking():
                return frozenset(self._consumer.list_topics(timeout=self._patience).topics)
        except KafkaException as error:
            raise self._silent(error) from None

    def partitions(self, topic: str) -> list[int]:
        """Numbers of the partitions of a topic."""
        try:
            with self._asking():
                metadata = self._consumer.list_topics(topic, self._patience).topics[topic]
        except KafkaException as error:
            raise self._silent(error) from None
        if metadata.error:
            why = reason(metadata.error)
            missing = metadata.error.code() in NO_TOPIC
            raise (NoTopic if missing else SetupError)(
                f"Kafka at {self._settings.kafka}, topic {topic}: {why}"
            )
        return sorted(metadata.partitions)

    def watermarks(self, topics: Sequence[str]) -> dict[PartitionId, Interval]:
        """The offsets ``[low, high)`` that Kafka holds of each (topic's name, partition)."""
        return {
            (topic, number): self._watermarks(TopicPartition(topic, number))
            for topic in topics
            for number in self.partitions(topic)
        }

    def commits(
        self, group: str, partitions: Sequence[PartitionId], topic_ids: Mapping[str, str]
    ) -> dict[PartitionId, Commit | None]:
        """What a consumer group has committed of topics with these ids; empty if we may not ask."""
        consumer = Consumer(self._options | {"group.id": group})
        try:
            with self._asking():
                found = _patiently(
                    lambda: commits(consumer, partitions, topic_ids, self._patience), self._patience
                )
            return {key: each if each and each.offset >= 0 else None for key, each in found.items()}
        except KafkaException:
            return {}
        finally:
            consumer.close()

    def committed(
        self, group: str, partitions: Sequence[PartitionId], topic_ids: Mapping[str, str]
    ) -> dict[str, dict[PartitionId, int | None]]:
        """By table the offsets below which everything was delivered for it.

        A KafkaSource, and releases before, have a group for each table, whose name begins with that
        of `group`. The one that is further counts: what either has committed is stored.

        Returns
        -------
        dict
            None where nothing is committed. Empty for a table if Kafka does not let us ask.
        """
        own = self.commits(group, partitions, topic_ids)
        found = {}
        for table, old_group in old_groups(group).items():
            old = self.commits(old_group, partitions, topic_ids)
            found[table] = {
                partition: max(
                    (
                        commit.of_table(table)
                        for commit in (own.get(partition), old.get(partition))
                        if commit
                    ),
                    default=None,
                )
                for partition in own.keys() | old.keys()
            }
        return found

    def message(self, topic: str, number: int, offset: int) -> Record | None:
        """The first message of a partition at `offset` or after it; None if there is none.

        Messages are what a consumer with ``isolation.level=read_committed`` gets: not the control
        records of transactions, nor what was aborted, or removed by compaction.
        """
        partition, last = (topic, number), self._last
        if self._reading == partition and last and self._asked <= offset <= last.offset:
            return last
        near = last and last.offset < offset <= last.offset + NEAR
        if self._reading != partition or not near:
            self._consumer.assign([TopicPartition(topic, number, offset)])
            self._reading, self._asked, self._last = partition, offset, None
        while self._last is None or self._last.offset < offset:
            message = self._consumer.poll(self._patience)
            if message is None:
                raise SetupError(f"Kafka at {self._settings.kafka}: {topic}/{number} does not read")
            error = message.error()
            if error is None:
                if self._last is not None:
                    self._asked = self._last.offset + 1
                self._last = Record.of(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._reading = None
                return None
            elif not error.retriable():
                raise self._silent(KafkaException(error))
        return self._last

    def _watermarks(self, partition: TopicPartition) -> Interval:
        ask = self._consumer.get_watermark_offsets
        try:
            with self._asking():
                return _patiently(lambda: ask(partition, self._patience), self._patience)
        except KafkaException as error:
            raise self._silent(error) from None

    def _asking(self) -> AbstractContextManager[None]:
        """Log that Kafka does not answer yet, if the block takes long."""
        where, seconds = self._settings.kafka, self._patience
        line = f"Kafka at {where} does not answer yet: waiting, {seconds:.0f} s at most"
        return telling_if_slow(log.warning, line)

    def _silent(self, error: KafkaException) -> SetupError:
        if error.args[0].code() in SILENT:
            self._reading = None  # the poll may take a message
            self._consumer.poll(0)  # calls `error_cb`, which may know why: a refused password
        told = [each for each in self._errors if each.code() not in SILENT]
        self._errors.clear()
        why = reason(told[-1] if told else error)
        return SetupError(
            f"Kafka at {self._settings.kafka} does not answer: {why}; "
            "set STAMPEDE_KAFKA, or leave the topics out to see what the store knows"
        )

    def close(self) -> None:
        """Close the connections."""
        if "_consumer" in self.__dict__:
            self._consumer.close()

    def __enter__(self) -> "KafkaTopics":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _patiently(ask: Callable[[], T], seconds: float) -> T:
    """What `ask` returns, asked again while Kafka elects a leader. Raises `KafkaException`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in NO_LEADER or time.monotonic() > deadline:
                raise
        time.sleep(0.2)
