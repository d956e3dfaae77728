"""Takes records from Kafka no faster than they are delivered, and commits delivered offsets.

One thread makes all calls to the Kafka client; deliveries run on the event loop.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.events.cloudevents.kafka_record import Record
from stampede.events.delivery.sink import Abandoned
from stampede.events.kafka.assigned_partitions import AssignedPartitions
from stampede.events.kafka.client_options import consumer_options
from stampede.events.kafka.held_records import Held, HeldRecords
from stampede.events.kafka.in_flight import AssignedPartition, RecordsInFlight
from stampede.events.kafka.login import KafkaLogin
from stampede.events.kafka.source_health import SourceHealth
from stampede.events.kafka.topic_ids import TopicIds
from stampede.events.kafka.topic_names import TopicNames
from stampede.telemetry.logs import get_logger

log = get_logger()

POLL_SECONDS = 0.1
# After waiting this long for room the partitions are paused: the client must be polled even then,
# but must not return more records. Not sooner, because a pause discards what was fetched ahead.
PAUSE_SECONDS = 1.0
COMMIT_SECONDS = 1.0
REPORT_SECONDS = 10.0
WATERMARK_SECONDS = 5.0
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
    health
        Told what the Kafka client does.
    """

    def __init__(
        self,
        settings: Settings,
        deliver: Callable[[Record], Coroutine[Any, Any, None]],
        down: Callable[[], bool],
        health: SourceHealth,
    ) -> None:
        self._health = health
        self._settings = settings
        self._login = KafkaLogin(settings)
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._in_flight = RecordsInFlight(settings.in_flight, settings.in_flight_bytes)
        self._failure: BaseException | None = None
        self._names = TopicNames(settings)
        topic_ids = TopicIds(settings)
        self._held = HeldRecords(topic_ids, self._in_flight)
        self._assigned = AssignedPartitions(
            settings, self._in_flight, down, self._cancel_soon, health, topic_ids
        )

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
            options = consumer_options(
                self._settings,
                self._login.options,
                on_commit=self._assigned.committed,
                on_statistics=self._health.told,
            )
            consumer = confluent_kafka.Consumer(options)
        except KafkaException as error:
            raise SetupError(f"Kafka options: {error.args[0].str()}") from None
        try:
            self._names.start()
            self._assigned.subscribe(consumer, self._names.existing)
            self._poll_until_stopped(consumer)
            self._held.drop()
            self._in_flight.wait_for(lambda: self._in_flight.events == 0, DRAIN_SECONDS)
            self._assigned.leave(consumer)
        finally:
            self._names.stop()
            consumer.close()

    def _poll_until_stopped(self, consumer: confluent_kafka.Consumer) -> None:
        committed = reported = time.monotonic()
        while not self._in_flight.stopping:
            self._health.polled()
            soon = self._held.proven_soon
            most = self._in_flight.wait_for_room(0 if soon else PAUSE_SECONDS)
            if most or not soon:
                self._assigned.pause_or_resume(consumer, full=most == 0)
                self._take(consumer, most or 1)  # poll even without room: it runs the callbacks
            self._deliver_proven(consumer, now=most == 0)
            now = time.monotonic()
            if now - committed >= COMMIT_SECONDS:
                committed = now
                self._assigned.commit(consumer)
                self._assigned.subscribe(consumer, self._names.existing)
                self._login.renew(consumer)
            if now - reported >= REPORT_SECONDS:
                self._report(now - reported)
                reported = now

    def _take(self, consumer: confluent_kafka.Consumer, most: int) -> None:
        # `poll` returns the first record at once; `consume` would wait for `most` or the timeout.
        first = consumer.poll(min(POLL_SECONDS, self._held.seconds_to_wait()))
        if first is None:
            return
        batch: list[Held] = []
        for message in [first, *(consumer.consume(most - 1, 0) if most > 1 else ())]:
            error = message.error()
            if error and error.code() != KafkaError._PARTITION_EOF:
                self._warn(error)
            elif partition := self._assigned.of(message):
                record = None
                if not error:
                    skipped = self._skipped(consumer, partition, message)
                    record = Record.of(message, partition.topic_id or None, skipped)
                batch.append(Held(partition, message.topic() or "", message.offset() or 0, record))
        self._held.hold(batch)

    def _deliver_proven(self, consumer: confluent_kafka.Consumer, now: bool) -> None:
        """Deliver the records whose topics are proven by a response of Kafka, if there is one."""
        response = self._held.answer(self._assigned.topics, now)
        if response is None:
            return
        self._assigned.learn(consumer, response)
        proven = self._held.proven(response)
        batch = [(held.partition, held.record) for held in proven if held.record]
        self._in_flight.begin(batch)
        for held in proven:
            if held.record is None:
                self._in_flight.reach(held.partition, held.offset)
        if proven:
            self._assigned.commit_beginnings(consumer)
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
        if error.fatal() or error.code() == KafkaError._FATAL:  # that code alone is not `fatal()`
            raise SetupError(f"Kafka: {error.str()}")
        log.warning("kafka", error=error.name(), reason=error.str())

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

    def _cancel_soon(self, partitions: list[AssignedPartition]) -> None:
        self._loop.call_soon_threadsafe(_cancel, partitions)

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


def _cancel(partitions: list[AssignedPartition]) -> None:
    for partition in partitions:
        for task in partition.tasks:
            task.cancel()
