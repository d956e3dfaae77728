"""The partitions that Kafka assigned to a source: paused, committed, given up, begun again.

All methods are called in the thread of the Kafka client.
"""

from collections.abc import Callable
from contextlib import suppress

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from stampede import metrics
from stampede.events.in_flight import AssignedPartition, PartitionKey, RecordsInFlight
from stampede.events.kafka_options import is_cooperative
from stampede.events.source_health import SourceHealth
from stampede.events.topic_ids import TopicIds, commit_note, committed_elsewhere
from stampede.logs import get_logger
from stampede.settings import Settings

log = get_logger()

REVOKE_SECONDS = 3.0  # the whole group waits while one member gives up a partition


class AssignedPartitions:
    """The partitions of one consumer.

    Parameters
    ----------
    settings
        The source's settings.
    in_flight
        The records that are being delivered.
    down
        Returns whether the sink is down. Then waiting for deliveries is useless.
    cancel
        Cancels the deliveries of partitions that were given up.
    health
        Knows offsets before the first delivery; told which topics there are not.
    """

    def __init__(
        self,
        settings: Settings,
        in_flight: RecordsInFlight,
        down: Callable[[], bool],
        cancel: Callable[[list[AssignedPartition]], None],
        health: SourceHealth,
    ) -> None:
        self._health = health
        self._settings = settings
        self._in_flight = in_flight
        self._down = down
        self._cancel = cancel
        self._partitions: dict[PartitionKey, AssignedPartition] = {}
        self._paused: set[PartitionKey] = set()
        self._topic_ids = TopicIds(settings)
        self._topics = [topic.strip() for topic in settings.topics.split(",")]

    def of(self, message: confluent_kafka.Message) -> AssignedPartition | None:
        """The partition of a message; None if it was given up after the client returned it."""
        return self._partitions.get((message.topic() or "", message.partition() or 0))

    def subscribe(self, consumer: confluent_kafka.Consumer) -> None:
        """Subscribe to the topics of the settings."""
        consumer.subscribe(
            self._topics,
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._lost,
        )

    def leave(self, consumer: confluent_kafka.Consumer) -> None:
        """Commit what was delivered, and give up all partitions."""
        leaving, self._partitions = self._partitions, {}
        self._give_up(consumer, leaving)

    def commit(self, consumer: confluent_kafka.Consumer) -> None:
        """Commit what was delivered, without waiting for Kafka, and set the metrics."""
        self._commit(consumer, self._partitions, asynchronous=True)
        self._set_metrics(consumer)

    def ask_topic_ids(self) -> None:
        """Ask Kafka for the ids of the topics; `restart_new_topics` finds the answer."""
        named = {topic for topic in self._topics if not topic.startswith("^")}  # else a pattern
        self._topic_ids.ask(named | {topic for topic, _ in self._partitions})

    def pause_or_resume(self, consumer: confluent_kafka.Consumer, full: bool) -> None:
        """Pause all partitions while there is no room for more records; else go on."""
        if full and (more := self._partitions.keys() - self._paused):
            consumer.pause([TopicPartition(*key) for key in more])  # those assigned meanwhile too
            self._paused |= more
        elif not full:
            self._resume(consumer, set(self._paused))

    def _resume(self, consumer: confluent_kafka.Consumer, keys: set[PartitionKey]) -> None:
        if keys:
            consumer.resume([TopicPartition(*key) for key in keys])
            self._paused -= keys

    def restart_new_topics(self, consumer: confluent_kafka.Consumer) -> None:
        """Begin again at the start of each topic that was made anew under its name.

        Records in flight are delivered but not committed. Records that were taken after the topic
        was made anew and before this was noticed are sent again, now with the right id.
        """
        topic_ids = self._topic_ids.answer()
        self._health.missing = self._topic_ids.missing
        for (topic, number), partition in list(self._partitions.items()):
            topic_id = topic_ids.get(topic)
            if topic_id is None or topic_id == partition.topic_id:
                continue
            if partition.topic_id is None:  # it could not be learnt before
                partition.topic_id = topic_id
                continue
            log.warning("topic made anew", topic=topic, partition=number, topic_id=topic_id)
            self._partitions[topic, number] = AssignedPartition(topic_id)
            try:
                consumer.seek(TopicPartition(topic, number, OFFSET_BEGINNING))
            except KafkaException as error:
                self._partitions[topic, number] = partition  # try again at the next answer
                log.warning("cannot begin again", topic=topic, reason=error.args[0].str())

    def _assigned(
        self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]
    ) -> None:
        if not partitions:  # a cooperative rebalance may begin by assigning none
            return
        ids = self._topic_ids.wait({each.topic for each in partitions})
        if stale := committed_elsewhere(consumer, partitions, ids):
            log.warning("committed offsets are of another topic", partitions=_names(stale))
            for each in stale:
                each.offset = OFFSET_BEGINNING
            if is_cooperative(self._settings):
                consumer.incremental_assign(partitions)
            else:
                consumer.assign(partitions)
        for each in partitions:
            self._partitions[each.topic, each.partition] = AssignedPartition(ids.get(each.topic))
        log.info("partitions assigned", partitions=_names(partitions), topic_ids=ids)

    def _revoked(
        self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]
    ) -> None:
        """Another source takes over: wait for records in flight, so that few are sent twice."""
        leaving = self._pop(consumer, partitions)
        self._in_flight.wait_for(
            lambda: self._down() or not any(p.offsets.unfinished for p in leaving.values()),
            REVOKE_SECONDS,
        )
        self._give_up(consumer, leaving)
        log.info("partitions given up", partitions=_names(partitions))

    def _lost(self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        """Another source has taken over: commit nothing; it sends the records in flight again."""
        self._cancel(list(self._pop(consumer, partitions).values()))
        log.warning("partitions lost", partitions=_names(partitions))

    def _pop(
        self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]
    ) -> dict[PartitionKey, AssignedPartition]:
        """Remove partitions from the assigned ones, and return those that were."""
        keys = [(each.topic, each.partition) for each in partitions]
        # Resume first: the client would keep the pause when a partition is assigned again.
        self._resume(consumer, self._paused.intersection(keys))
        for key in keys:
            with suppress(KeyError):
                metrics.SOURCE_LAG.remove(*map(str, key))
        return {key: self._partitions.pop(key) for key in keys if key in self._partitions}

    def _give_up(
        self,
        consumer: confluent_kafka.Consumer,
        leaving: dict[PartitionKey, AssignedPartition],
    ) -> None:
        self._commit(consumer, leaving, asynchronous=False)
        self._cancel(list(leaving.values()))

    def _commit(
        self,
        consumer: confluent_kafka.Consumer,
        partitions: dict[PartitionKey, AssignedPartition],
        asynchronous: bool,
    ) -> None:
        changed = [
            TopicPartition(*key, position, metadata=commit_note(partitions[key].topic_id))
            for key, position in self._in_flight.positions(partitions).items()
            if position is not None and position != partitions[key].committed
        ]
        if not changed:
            return
        try:
            if asynchronous:
                consumer.commit(offsets=changed)
            else:
                consumer.commit(offsets=changed, asynchronous=False)
        except KafkaException as error:
            # Harmless: after a restart the records since the last commit are sent again.
            log.warning("commit failed", reason=error.args[0].str(), partitions=_names(changed))
            return
        for each in changed:
            partitions[each.topic, each.partition].committed = each.offset

    def committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Note the result of a commit: what failed is committed again."""
        if error is None:
            return
        log.warning("commit failed", reason=error.str(), partitions=_names(partitions))
        for each in partitions:
            if partition := self._partitions.get((each.topic, each.partition)):
                partition.committed = None  # commit again

    def _set_metrics(self, consumer: confluent_kafka.Consumer) -> None:
        for key, partition in list(self._partitions.items()):
            _, high = consumer.get_watermark_offsets(TopicPartition(*key), cached=True)
            position = partition.offsets.position
            if position is None and key in self._health.waiting:
                position, high = self._health.waiting[key]
            if high >= 0 and position is not None:
                topic, number = key
                metrics.SOURCE_LAG.labels(topic, str(number)).set(max(0, high - position))
        metrics.SOURCE_IN_FLIGHT.set(self._in_flight.events)
        metrics.SOURCE_IN_FLIGHT_BYTES.set(self._in_flight.bytes)


def _names(partitions: list[TopicPartition]) -> list[str]:
    """Names for the log, ``topic/partition``."""
    return [f"{each.topic}/{each.partition}" for each in partitions]
