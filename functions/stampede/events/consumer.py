"""Takes records from Kafka no faster than they are delivered, and commits delivered offsets.

One thread makes all calls to the Kafka client; deliveries run on the event loop.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import confluent_kafka
import structlog
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from stampede import metrics
from stampede.errors import SetupError
from stampede.events.in_flight import AssignedPartition, PartitionKey, RecordsInFlight
from stampede.events.kafka_options import consumer_options, is_cooperative
from stampede.events.record import Record
from stampede.events.sink import Abandoned
from stampede.events.topic_ids import TopicIds, commit_note, committed_elsewhere
from stampede.settings import Settings

log = structlog.get_logger()

POLL_SECONDS = 0.1
# After waiting this long for room the partitions are paused: the client must be polled even then,
# but must not return more records. Not sooner, because a pause discards what was fetched ahead.
PAUSE_SECONDS = 1.0
COMMIT_SECONDS = 1.0
REPORT_SECONDS = 10.0
WATERMARK_SECONDS = 5.0
TOPIC_ID_SECONDS = 10.0  # how often the source asks whether a topic was made anew
REVOKE_SECONDS = 3.0  # the whole group waits while one member gives up a partition
DRAIN_SECONDS = 20.0  # less than the 30 s that Kubernetes gives


class Consumer:
    """Takes records from Kafka and passes them to `deliver`, a bounded number at a time.

    Parameters
    ----------
    settings
        The source's settings.
    deliver
        Returns once a record is durable elsewhere; raises `Abandoned` if the source stops first.
    down
        Returns whether the sink is down. Then waiting for deliveries is useless.
    """

    def __init__(
        self,
        settings: Settings,
        deliver: Callable[[Record], Coroutine[Any, Any, None]],
        down: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._deliver = deliver
        self._down = down
        self._loop = asyncio.get_running_loop()
        self._in_flight = RecordsInFlight(settings.in_flight, settings.in_flight_bytes)
        self._failure: BaseException | None = None
        self._partitions: dict[PartitionKey, AssignedPartition] = {}
        self._paused: set[PartitionKey] = set()
        self._topic_ids = TopicIds(settings)

    async def run(self, stop: asyncio.Event) -> None:
        """Take records until `stop` is set; then wait for those in flight, and commit.

        Raises
        ------
        SetupError
            Kafka refuses: a wrong option, no access, or another fatal error.
        """
        consuming = asyncio.create_task(asyncio.to_thread(self._consume))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({consuming, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._in_flight.stop()
            stopping.cancel()
            stop.set()  # abandons the deliveries that wait for another attempt
            await consuming
        if self._failure:
            raise self._failure

    # -- in the Kafka thread

    def _consume(self) -> None:
        """Take records until `run` stops; then drain and commit. Raises `SetupError`."""
        try:
            options = consumer_options(self._settings, on_commit=self._committed)
            consumer = confluent_kafka.Consumer(options)
        except KafkaException as error:
            raise SetupError(f"Kafka options: {error.args[0].str()}") from None
        try:
            consumer.subscribe(
                [topic.strip() for topic in self._settings.topics.split(",")],
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._lost,
            )
            self._poll_until_stopped(consumer)
            self._in_flight.wait_for(lambda: self._in_flight.events == 0, DRAIN_SECONDS)
            leaving, self._partitions = self._partitions, {}
            self._give_up(consumer, leaving)
        finally:
            consumer.close()

    def _poll_until_stopped(self, consumer: confluent_kafka.Consumer) -> None:
        committed = reported = asked = time.monotonic()
        while not self._in_flight.stopping:
            most = self._in_flight.wait_for_room(PAUSE_SECONDS)
            self._pause_or_resume(consumer, full=most == 0)
            self._take(consumer, most or 1)  # poll even without room: it runs the callbacks
            now = time.monotonic()
            if now - committed >= COMMIT_SECONDS:
                committed = now
                self._commit(consumer, self._partitions, asynchronous=True)
                self._set_metrics(consumer)
            if now - reported >= REPORT_SECONDS:
                self._report(now - reported)
                reported = now
            if now - asked >= TOPIC_ID_SECONDS:
                asked = now
                self._topic_ids.ask({topic for topic, _ in self._partitions})
            self._restart_new_topics(consumer, self._topic_ids.answer())

    def _take(self, consumer: confluent_kafka.Consumer, most: int) -> None:
        # `poll` returns the first record at once; `consume` would wait for `most` or the timeout.
        first = consumer.poll(POLL_SECONDS)
        if first is None:
            return
        batch: list[tuple[AssignedPartition, Record]] = []
        for message in [first, *(consumer.consume(most - 1, 0) if most > 1 else ())]:
            if message.error():
                self._warn(message.error())
                continue
            partition = self._partitions.get((message.topic(), message.partition()))
            if partition:  # None: given up after the client returned this record
                skipped = self._skipped(consumer, partition, message)
                batch.append((partition, Record.of(message, partition.topic_id, skipped)))
        self._in_flight.add(batch)
        self._loop.call_soon_threadsafe(self._start, batch)

    def _skipped(
        self,
        consumer: confluent_kafka.Consumer,
        partition: AssignedPartition,
        message: confluent_kafka.Message,
    ) -> int:
        """How many offsets before a message are no messages: control records of transactions, say.

        0 if retention may have deleted them while the source was behind.
        """
        offset = message.offset() or 0
        expected, partition.next = partition.next, offset + 1
        if expected is None or expected >= offset:
            return 0
        try:
            where = TopicPartition(message.topic() or "", message.partition() or 0)
            low, _ = consumer.get_watermark_offsets(where, WATERMARK_SECONDS)
        except KafkaException:
            return 0
        return offset - expected if low <= expected else 0

    def _warn(self, error: KafkaError) -> None:
        if error.fatal():
            raise SetupError(f"Kafka: {error.str()}")
        log.warning("kafka", error=error.name(), reason=error.str())

    def _pause_or_resume(self, consumer: confluent_kafka.Consumer, full: bool) -> None:
        if full and (more := self._partitions.keys() - self._paused):
            consumer.pause([TopicPartition(*key) for key in more])  # those assigned meanwhile too
            self._paused |= more
        elif not full:
            self._resume(consumer, set(self._paused))

    def _resume(self, consumer: confluent_kafka.Consumer, keys: set[PartitionKey]) -> None:
        if keys:
            consumer.resume([TopicPartition(*key) for key in keys])
            self._paused -= keys

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

    def _restart_new_topics(
        self, consumer: confluent_kafka.Consumer, topic_ids: dict[str, str]
    ) -> None:
        """Begin again at the start of each topic that was made anew under its name.

        Records in flight are delivered but not committed. Records that were taken after the topic
        was made anew and before this was noticed are sent again, now with the right id.
        """
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
        self._cancel_deliveries(self._pop(consumer, partitions))
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
        self._cancel_deliveries(leaving)

    def _cancel_deliveries(self, leaving: dict[PartitionKey, AssignedPartition]) -> None:
        self._loop.call_soon_threadsafe(self._cancel, list(leaving.values()))

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

    def _committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
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
            if high >= 0 and position is not None:
                topic, number = key
                metrics.SOURCE_LAG.labels(topic, str(number)).set(max(0, high - position))
        metrics.SOURCE_IN_FLIGHT.set(self._in_flight.events)
        metrics.SOURCE_IN_FLIGHT_BYTES.set(self._in_flight.bytes)

    def _report(self, seconds: float) -> None:
        delivered = self._in_flight.reset_delivered()
        if delivered or self._in_flight.events:
            log.info(
                "delivered",
                events=delivered,
                per_second=round(delivered / seconds, 1),
                in_flight=self._in_flight.events,
                in_flight_bytes=self._in_flight.bytes,
            )

    # -- on the event loop

    def _start(self, batch: list[tuple[AssignedPartition, Record]]) -> None:
        for partition, record in batch:
            task = self._loop.create_task(self._deliver(record))
            partition.tasks.add(task)
            task.add_done_callback(partial(self._done, partition, record))

    def _done(self, partition: AssignedPartition, record: Record, task: asyncio.Task[None]) -> None:
        partition.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        delivered = error is None and not task.cancelled()
        self._in_flight.remove(partition, record, delivered)
        if error and not isinstance(error, Abandoned):
            self._failure = error  # a bug: end the source rather than skip an event
            self._in_flight.stop()

    def _cancel(self, partitions: list[AssignedPartition]) -> None:
        for partition in partitions:
            for task in partition.tasks:
                task.cancel()


def _names(partitions: list[TopicPartition]) -> list[str]:
    """Names for the log, ``topic/partition``."""
    return [f"{each.topic}/{each.partition}" for each in partitions]
