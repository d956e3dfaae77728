"""The partitions that Kafka assigned to a source: paused, committed, given up, begun again.

All methods are called in the thread of the Kafka client.
"""

from collections.abc import Collection, Mapping, Sequence

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.events.delivery.dispatcher import Dispatcher
from stampede.events.delivery.in_flight import AssignedPartition, PartitionKey, RecordsInFlight
from stampede.events.delivery.outlet import Outlet
from stampede.events.kafka.catch_up import Beginnings
from stampede.events.kafka.client_options import is_cooperative
from stampede.events.kafka.lag import SourceLag
from stampede.events.kafka.source_health import SourceHealth
from stampede.events.kafka.topic_ids import Answer, TopicIds, commit_note
from stampede.telemetry.logs import get_logger

log = get_logger()

REVOKE_SECONDS = 3.0  # the whole group waits while one member gives up a partition
LEAVE_SECONDS = 1.0
ANSWER_SECONDS = 5.0  # of a commit that is waited for


class AssignedPartitions:
    """The partitions of one consumer.

    Parameters
    ----------
    settings
        The source's settings.
    in_flight
        The records that are being delivered.
    outlets
        Those that get the records.
    dispatcher
        Cancels the deliveries of partitions that were given up.
    health
        Knows offsets before the first delivery; told which topics there are not.
    topic_ids
        Asks Kafka for the ids of topics.

    Attributes
    ----------
    all
        The partitions by topic and number.
    """

    def __init__(
        self,
        settings: Settings,
        in_flight: RecordsInFlight,
        outlets: Sequence[Outlet],
        dispatcher: Dispatcher,
        health: SourceHealth,
        topic_ids: TopicIds,
    ) -> None:
        self._health = health
        self._settings = settings
        self._in_flight = in_flight
        self._outlets = outlets
        self._begins = Beginnings(settings, outlets)
        self._dispatcher = dispatcher
        self.all: dict[PartitionKey, AssignedPartition] = {}
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
        partition = self.all.get(key)
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
            for lagging in partition.behind.values():
                lagging.left = True
            partition = self.all[key] = AssignedPartition(partition.topic_id, self._outlets)
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
            for key, each in self.all.items()
            if key[0] in self._subscribed
            and (each.unfinished or self._lag.of(consumer, key, each) != 0)
        }

    def leave(self, consumer: confluent_kafka.Consumer) -> None:
        """Commit what was delivered, and give up all partitions."""
        leaving, self.all = self.all, {}
        self._give_up(consumer, leaving)

    def commit(self, consumer: confluent_kafka.Consumer) -> None:
        """Commit what was delivered, without waiting for Kafka, and show the lag."""
        _commit(consumer, self._in_flight, self.all, asynchronous=True)
        self._lag.show(consumer, self.all)
        if not self.all:
            self._health.learnt()

    @property
    def topics(self) -> set[str]:
        """The topics that the settings name, and those of the assigned partitions."""
        return set(self._topics.names) | {topic for topic, _ in self.all}

    def commit_beginnings(self, consumer: confluent_kafka.Consumer) -> None:
        """Commit the first position of each partition, before any of its records is delivered.

        So a partition of which a group has committed nothing is one that it has not begun to read.
        """
        begun = {key: each for key, each in self.all.items() if not each.opened}
        begun = {key: each for key, each in begun.items() if each.position[0] is not None}
        for partition in begun.values():
            partition.opened = True
        _commit(consumer, self._in_flight, begun, asynchronous=False)

    def pause_or_resume(self, consumer: confluent_kafka.Consumer, full: bool) -> None:
        """Pause all partitions while there is no room for more records; else go on."""
        if full and (more := self.all.keys() - self._paused):
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
        if all(topic in response.ids or topic in response.missing for topic, _ in self.all):
            self._health.learnt()
        for key, partition in list(self.all.items()):
            topic_id = response.ids.get(key[0])
            if topic_id is None or (topic_id == partition.topic_id and not partition.passed_over):
                continue
            try:
                if partition.topic_id in (None, topic_id):
                    self.all[key] = _go_on(consumer, key, partition, topic_id, self._begins)
                else:
                    log.warning("topic made anew", topic=key[0], partition=key[1], id=topic_id)
                    consumer.seek(TopicPartition(*key, OFFSET_BEGINNING))
                    partition.leave()
                    self.all[key] = AssignedPartition(topic_id, self._outlets)
            except KafkaException as error:  # the next answer tries again
                log.warning("cannot begin again", topic=key[0], reason=error.args[0].str())

    def _assigned(
        self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]
    ) -> None:
        if not partitions:  # a cooperative rebalance may begin by assigning none
            return
        ids = self._topic_ids.wait({each.topic for each in partitions}).ids
        keys = [(each.topic, each.partition) for each in partitions]
        begins: Mapping[PartitionKey, Mapping[Outlet, int] | None] = {}
        try:
            begins = self._begins.of(consumer, keys, ids)
        except KafkaException as error:  # passed over until they are known
            log.warning("committed offsets are not known", reason=error.args[0].str())
        for key, each in zip(keys, partitions, strict=True):
            begin = begins.get(key, {})
            if begin is None:
                log.warning("committed offset is of another topic", partition=_name(each))
                each.offset = OFFSET_BEGINNING
            elif begin:
                each.offset = max(begin.values())
            topic_id = ids.get(each.topic) if key in begins else None
            self.all[key] = self._begins.partition(topic_id, begin)
        if any(begin is None or begin for begin in begins.values()):
            if is_cooperative(self._settings):
                consumer.incremental_assign(partitions)
            else:
                consumer.assign(partitions)
        log.info("partitions assigned", partitions=_names(partitions), topic_ids=ids)

    def _revoked(
        self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]
    ) -> None:
        """Another source takes over: wait for records in flight, so that few are sent twice."""
        leaving = self._pop(consumer, partitions)
        self._in_flight.wait_for(
            lambda: (
                not any(
                    offsets.unfinished
                    for each in leaving.values()
                    for outlet, offsets in each.offsets.items()
                    if not outlet.down  # then waiting is useless
                )
            ),
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
        popped = {key: self.all.pop(key) for key in keys if key in self.all}
        for partition in popped.values():
            partition.leave()
        self._lag.show(consumer, self.all)
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
        busy = {topic for (topic, _), each in leaving.items() if each.unfinished or each.behind}
        response = self._topic_ids.wait(busy, LEAVE_SECONDS)
        self._dispatcher.cancel(
            part
            for (topic, _), each in leaving.items()
            if not response.says_gone(topic, each.topic_id)
            for part in (each, *each.behind.values())
        )

    def committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Note the result of a commit: what failed is committed again."""
        if error is None:
            return
        log.warning("commit failed", reason=error.str(), partitions=_names(partitions))
        for each in partitions:
            if partition := self.all.get((each.topic, each.partition)):
                partition.committed = None  # commit again


def _go_on(
    consumer: confluent_kafka.Consumer,
    key: PartitionKey,
    partition: AssignedPartition,
    topic_id: str,
    begins: Beginnings,
) -> AssignedPartition:
    """Take the records of a partition that were passed over. Raises `KafkaException`."""
    if partition.again_at is None:
        return partition  # none was yet, so the client has not said where it begins
    offset = partition.again_at
    if partition.topic_id is None:
        begin = begins.of(consumer, [key], {key[0]: topic_id})[key]
        partition = begins.partition(topic_id, begin)
        if begin is None:
            offset = OFFSET_BEGINNING
        elif begin:
            offset = max(begin.values())
    consumer.seek(TopicPartition(*key, offset))
    partition.next = None
    partition.passed_over, partition.again_at = False, None
    return partition


def _commit(
    consumer: confluent_kafka.Consumer,
    in_flight: RecordsInFlight,
    partitions: dict[PartitionKey, AssignedPartition],
    asynchronous: bool,
) -> None:
    """Commit the positions that have changed. Kafka may refuse; then the next call tries again."""
    changed = {
        key: position
        for key, position in in_flight.positions(partitions).items()
        if position[0] is not None and position != partitions[key].committed
    }
    if not changed:
        return
    offsets = [
        TopicPartition(*key, offset, metadata=commit_note(partitions[key].topic_id, behind))
        for key, (offset, behind) in changed.items()
        if offset is not None
    ]
    try:
        if asynchronous:
            consumer.commit(offsets=offsets)
        else:
            _commit_within(consumer, offsets, ANSWER_SECONDS)
    except KafkaException as error:
        # Harmless: after a restart the records since the last commit are sent again.
        log.warning("commit failed", reason=error.args[0].str(), partitions=_names(offsets))
        return
    for key, position in changed.items():
        partitions[key].committed = position


def _commit_within(
    consumer: confluent_kafka.Consumer, offsets: list[TopicPartition], seconds: float
) -> None:
    """Commit, and wait until Kafka has the offsets, but not for ever.

    The client's synchronous call takes no time limit, and waited for minutes after Kafka had gone.
    In a thread it gets no answer while a rebalance calls back. So the offsets are read back: that
    has a limit, and the client asks Kafka one after the other. What it commits after the limit is
    old, and harmless.

    Raises
    ------
    KafkaException
        Kafka does not answer in time, or has not taken the offsets.
    """
    consumer.commit(offsets=offsets)
    kept = consumer.committed([TopicPartition(*_key(each)) for each in offsets], seconds)
    if {_key(each): each.offset for each in kept} != {_key(each): each.offset for each in offsets}:
        raise KafkaException(KafkaError(KafkaError._FAIL, "Kafka has not taken the offsets"))


def _key(partition: TopicPartition) -> PartitionKey:
    return partition.topic, partition.partition


def _names(partitions: Sequence[TopicPartition]) -> list[str]:
    """Names for the log."""
    return [_name(each) for each in partitions]


def _name(partition: TopicPartition) -> str:
    """A name for the log, ``topic/partition``."""
    return f"{partition.topic}/{partition.partition}"
