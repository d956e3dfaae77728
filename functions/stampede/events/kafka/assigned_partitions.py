"""The partitions that Kafka assigned to a source: paused, committed, given up, begun again.

All methods are called in the thread of the Kafka client.
"""

from collections.abc import Callable, Collection

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.events.kafka.client_options import is_cooperative
from stampede.events.kafka.in_flight import AssignedPartition, PartitionKey, RecordsInFlight
from stampede.events.kafka.lag import SourceLag
from stampede.events.kafka.source_health import SourceHealth
from stampede.events.kafka.topic_ids import Answer, TopicIds, commit_note, committed_elsewhere
from stampede.telemetry import source_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

REVOKE_SECONDS = 3.0  # the whole group waits while one member gives up a partition
LEAVE_SECONDS = 1.0


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
    topic_ids
        Asks Kafka for the ids of topics.
    """

    def __init__(
        self,
        settings: Settings,
        in_flight: RecordsInFlight,
        down: Callable[[], bool],
        cancel: Callable[[list[AssignedPartition]], None],
        health: SourceHealth,
        topic_ids: TopicIds,
    ) -> None:
        self._health = health
        self._settings = settings
        self._in_flight = in_flight
        self._down = down
        self._cancel = cancel
        self._partitions: dict[PartitionKey, AssignedPartition] = {}
        self._paused: set[PartitionKey] = set()
        self._topic_ids = topic_ids
        self._topics = Topics.parse(settings.topics)
        self._subscribed: set[str] = set()
        self._lag = SourceLag(self._topics, health)

    def of(self, message: confluent_kafka.Message) -> AssignedPartition | None:
        """The partition of a message; None if the message is not to be taken.

        It was given up after the client returned the message, or its topic is not known.
        """
        key, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
        partition = self._partitions.get(key)
        if partition is None:
            return None
        if partition.passed_over:
            if partition.again_at is None:
                partition.again_at = offset
            return None
        if partition.next is not None and offset < partition.next:
            # Kafka lost its newest records, and the client began again at the oldest. What is held
            # of them is not dropped: nobody else can take it any more.
            log.warning("partition went back", topic=key[0], partition=key[1], offset=offset)
            partition = self._partitions[key] = AssignedPartition(partition.topic_id)
        return partition

    def subscribe(
        self, consumer: confluent_kafka.Consumer, existing: Collection[str] | None
    ) -> None:
        """Subscribe to the topics of the settings, anew if those of families have changed.

        A topic that has left its family's window is given up once it is read to its end.

        Parameters
        ----------
        existing
            All topics of Kafka; None if they are not known.
        """
        if existing is None and self._subscribed:
            return
        topics = self._topics.current(existing or ())
        topics |= {each for each in self._unfinished(consumer) if each in (existing or ())}
        self._health.idle = not topics
        if topics == self._subscribed:
            return
        if topics:
            consumer.subscribe(
                sorted(topics),
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._lost,
            )
        else:  # the last topics are gone
            consumer.unsubscribe()
        new, old = topics - self._subscribed, self._subscribed - topics
        log.info("topics subscribed", new=sorted(new), given_up=sorted(old), all=len(topics))
        self._subscribed = topics

    def _unfinished(self, consumer: confluent_kafka.Consumer) -> set[str]:
        """The subscribed topics of which a partition that is assigned is not read to its end."""
        return {
            key[0]
            for key, each in self._partitions.items()
            if key[0] in self._subscribed
            and (each.offsets.unfinished or self._lag.of(consumer, key, each) != 0)
        }

    def leave(self, consumer: confluent_kafka.Consumer) -> None:
        """Commit what was delivered, and give up all partitions."""
        leaving, self._partitions = self._partitions, {}
        self._give_up(consumer, leaving)

    def commit(self, consumer: confluent_kafka.Consumer) -> None:
        """Commit what was delivered, without waiting for Kafka, and set the metrics."""
        _commit(consumer, self._in_flight, self._partitions, asynchronous=True)
        self._lag.show(consumer, self._partitions)
        source_metrics.SOURCE_IN_FLIGHT.set(self._in_flight.events)
        source_metrics.SOURCE_IN_FLIGHT_BYTES.set(self._in_flight.bytes)
        if not self._partitions:
            self._health.learnt()

    @property
    def topics(self) -> set[str]:
        """The topics that the settings name, and those of the assigned partitions."""
        return set(self._topics.names) | {topic for topic, _ in self._partitions}

    def commit_beginnings(self, consumer: confluent_kafka.Consumer) -> None:
        """Commit the first position of each partition, before any of its records is delivered.

        So a partition of which a group has committed nothing is one that it has not begun to read.
        """
        begun = {key: each for key, each in self._partitions.items() if not each.opened}
        begun = {key: each for key, each in begun.items() if each.offsets.position is not None}
        for partition in begun.values():
            partition.opened = True
        _commit(consumer, self._in_flight, begun, asynchronous=False)

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

    def learn(self, consumer: confluent_kafka.Consumer, response: Answer) -> None:
        """Begin again at the start of each topic that was made anew under its name.

        Records in flight are of the old topic: they are delivered, and not committed. A partition
        whose records were passed over begins where that began, if its topic is the same.
        """
        self._health.missing = response.missing.intersection(self._topics.names)
        if all(topic in response.ids or topic in response.missing for topic, _ in self._partitions):
            self._health.learnt()
        for key, partition in list(self._partitions.items()):
            topic_id = response.ids.get(key[0])
            if topic_id is None or (topic_id == partition.topic_id and not partition.passed_over):
                continue
            try:
                if partition.topic_id in (None, topic_id):
                    _go_on(consumer, key, partition, topic_id)
                else:
                    log.warning("topic made anew", topic=key[0], partition=key[1], id=topic_id)
                    consumer.seek(TopicPartition(*key, OFFSET_BEGINNING))
                    partition.left = True
                    self._partitions[key] = AssignedPartition(topic_id)
            except KafkaException as error:  # the next answer tries again
                log.warning("cannot begin again", topic=key[0], reason=error.args[0].str())

    def _assigned(
        self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]
    ) -> None:
        if not partitions:  # a cooperative rebalance may begin by assigning none
            return
        ids = self._topic_ids.wait({each.topic for each in partitions}).ids
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
        self._cancel_for_others(self._pop(consumer, partitions))
        log.warning("partitions lost", partitions=_names(partitions))

    def _pop(
        self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]
    ) -> dict[PartitionKey, AssignedPartition]:
        """Remove partitions from the assigned ones, and return those that were."""
        keys = [(each.topic, each.partition) for each in partitions]
        # Resume first: the client would keep the pause when a partition is assigned again.
        self._resume(consumer, self._paused.intersection(keys))
        popped = {key: self._partitions.pop(key) for key in keys if key in self._partitions}
        for partition in popped.values():
            partition.left = True
        self._lag.show(consumer, self._partitions)
        return popped

    def _give_up(
        self,
        consumer: confluent_kafka.Consumer,
        leaving: dict[PartitionKey, AssignedPartition],
    ) -> None:
        _commit(consumer, self._in_flight, leaving, asynchronous=False)
        self._cancel_for_others(leaving)

    def _cancel_for_others(self, leaving: dict[PartitionKey, AssignedPartition]) -> None:
        """Cancel the deliveries that another source takes over.

        Of a topic that is gone there is no other source: its deliveries go on.
        """
        busy = {topic for (topic, _), each in leaving.items() if each.offsets.unfinished}
        response = self._topic_ids.wait(busy, LEAVE_SECONDS)
        self._cancel(
            [
                each
                for (topic, _), each in leaving.items()
                if not response.says_gone(topic, each.topic_id)
            ]
        )

    def committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Note the result of a commit: what failed is committed again."""
        if error is None:
            return
        log.warning("commit failed", reason=error.str(), partitions=_names(partitions))
        for each in partitions:
            if partition := self._partitions.get((each.topic, each.partition)):
                partition.committed = None  # commit again


def _go_on(
    consumer: confluent_kafka.Consumer,
    key: PartitionKey,
    partition: AssignedPartition,
    topic_id: str,
) -> None:
    """Take the records of a partition that were passed over. Raises `KafkaException`."""
    if partition.again_at is None:
        return  # none was yet, so the client has not said where it begins
    where = TopicPartition(*key, partition.again_at)
    if partition.topic_id is None and committed_elsewhere(consumer, [where], {key[0]: topic_id}):
        where.offset = OFFSET_BEGINNING
    consumer.seek(where)
    partition.topic_id, partition.next = topic_id, None
    partition.passed_over, partition.again_at = False, None


def _commit(
    consumer: confluent_kafka.Consumer,
    in_flight: RecordsInFlight,
    partitions: dict[PartitionKey, AssignedPartition],
    asynchronous: bool,
) -> None:
    """Commit the positions that have changed. Kafka may refuse; then the next call tries again."""
    changed = [
        TopicPartition(*key, position, metadata=commit_note(partitions[key].topic_id))
        for key, position in in_flight.positions(partitions).items()
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


def _names(partitions: list[TopicPartition]) -> list[str]:
    """Names for the log, ``topic/partition``."""
    return [f"{each.topic}/{each.partition}" for each in partitions]
