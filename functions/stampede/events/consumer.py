"""Takes records out of Kafka no faster than they are delivered, and commits what is delivered.

All calls into the Kafka client are made by one thread; deliveries run on the event loop.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import confluent_kafka
import structlog
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from stampede import metrics
from stampede.errors import SetupError
from stampede.events.delivery import Abandoned
from stampede.events.offsets import Offsets
from stampede.events.record import Record
from stampede.settings import Settings

log = structlog.get_logger()

BATCH = 100  # most records taken at once
POLL_SECONDS = 0.1
# Waiting for room this long is back-pressure; after it the partitions are paused, so that the
# client can be polled without giving more. A pause throws away what was fetched ahead.
PATIENCE_SECONDS = 1.0
COMMIT_SECONDS = 1.0
REPORT_SECONDS = 10.0
REVOKE_SECONDS = 3.0  # the whole group waits for whoever gives up a partition
DRAIN_SECONDS = 20.0  # less than the 30 s that Kubernetes gives

DEFAULTS = {
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "cooperative-sticky",
    # Fetched ahead. When that much waits the client looks again after a second by default: with
    # alerts of 87 KB that made 400 events a second of 4,000.
    "queued.max.messages.kbytes": "16384",
    "fetch.queue.backoff.ms": "20",
}


class AssignedPartition:
    """A partition assigned to this source, and what of it is under way."""

    def __init__(self) -> None:
        self.offsets = Offsets()
        self.committed: int | None = None
        self.tasks: set[asyncio.Task[None]] = set()  # touched on the loop only


class Consumer:
    """From Kafka to `deliver`, with bounds on how much is under way.

    Parameters
    ----------
    settings
        Of the source.
    deliver
        Takes a record; returns when it is durable elsewhere, or raises `Abandoned`.
    down
        Whether deliveries go nowhere at present, so that waiting for them is in vain.
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
        self._stopping = False
        self._failure: BaseException | None = None
        self._partitions: dict[tuple[str, int], AssignedPartition] = {}
        self._paused: set[tuple[str, int]] = set()
        # Shared by the thread and the loop, under this lock:
        self._changed = threading.Condition()
        self._events = self._bytes = self._delivered = 0
        self._awaited: Callable[[], bool] | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Take records until `stop` is set; then let those under way finish, and commit.

        Raises
        ------
        SetupError
            Kafka will not have it: no such broker, no access, a wrong option.
        """
        reading = asyncio.create_task(asyncio.to_thread(self._read))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stop()
            stopping.cancel()
            stop.set()  # whoever waits for another try does so in vain
            await reading
        if self._failure:
            raise self._failure

    def _stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()

    # -- the thread

    def _read(self) -> None:
        try:
            consumer = confluent_kafka.Consumer(self._options())
        except KafkaException as error:
            raise SetupError(f"Kafka options: {error.args[0].str()}") from None
        try:
            consumer.subscribe(
                [topic.strip() for topic in self._settings.topics.split(",")],
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._lost,
            )
            committed = reported = time.monotonic()
            while not self._stopping:
                most = self._room()
                self._pause_when(consumer, most == 0)
                self._take(consumer, most or 1)
                now = time.monotonic()
                if now - committed >= COMMIT_SECONDS:
                    committed = now
                    self._commit(consumer, self._partitions, asynchronous=True)
                    self._watch_lag(consumer)
                if now - reported >= REPORT_SECONDS:
                    self._report(now - reported)
                    reported = now
            self._await(lambda: self._events == 0, DRAIN_SECONDS)
            left, self._partitions = self._partitions, {}
            self._commit(consumer, left, asynchronous=False)
            self._leave(left)
        finally:
            consumer.close()

    def _options(self) -> dict[str, Any]:
        return (
            DEFAULTS
            | {
                "bootstrap.servers": self._settings.kafka,
                "group.id": self._settings.group,
                "client.id": self._settings.source_name,
            }
            | self._settings.kafka_options
            | {
                # Only what is delivered is committed, here and by no one else.
                "enable.auto.commit": False,
                "on_commit": self._committed,
            }
        )

    def _room(self) -> int:
        """How many records may be taken, having waited a little for the first; 0 for none."""
        most_events, most_bytes = self._settings.in_flight, self._settings.in_flight_bytes
        # A tenth must be free, else every delivered event would wake this thread for one more.
        self._await(
            lambda: self._events <= 0.9 * most_events and self._bytes <= 0.9 * most_bytes,
            PATIENCE_SECONDS,
        )
        with self._changed:
            size = max(1, self._bytes // max(1, self._events))
            free = min(most_events - self._events, (most_bytes - self._bytes) // size)
            return max(0, min(BATCH, free))

    def _take(self, consumer: confluent_kafka.Consumer, most: int) -> None:
        # poll returns with the first record, consume only when it has all or time is up.
        first = consumer.poll(POLL_SECONDS)
        if first is None:
            return
        batch: list[tuple[AssignedPartition, Record]] = []
        for message in [first, *(consumer.consume(most - 1, 0) if most > 1 else ())]:
            if message.error():
                self._warn(message.error())
                continue
            record = Record.of(message)
            partition = self._partitions.get((record.topic, record.partition))
            if partition:  # else it was given up while records of it were in our hands
                batch.append((partition, record))
        with self._changed:
            for partition, record in batch:
                partition.offsets.take(record.offset)
                self._bytes += len(record.value)
            self._events += len(batch)
        self._loop.call_soon_threadsafe(self._start, batch)

    def _warn(self, error: KafkaError) -> None:
        if error.fatal():
            raise SetupError(f"Kafka: {error.str()}")
        log.warning("kafka", error=error.name(), reason=error.str())

    def _pause_when(self, consumer: confluent_kafka.Consumer, full: bool) -> None:
        if full and (more := self._partitions.keys() - self._paused):
            consumer.pause([TopicPartition(*key) for key in more])
            self._paused |= more
        elif not full:
            self._resume(consumer, set(self._paused))

    def _resume(self, consumer: confluent_kafka.Consumer, keys: set[tuple[str, int]]) -> None:
        if keys:
            consumer.resume([TopicPartition(*key) for key in keys])
            self._paused -= keys

    def _assigned(
        self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]
    ) -> None:
        for each in partitions:
            self._partitions[each.topic, each.partition] = AssignedPartition()
        if partitions:  # a cooperative rebalance may begin by giving none
            log.info("partitions assigned", partitions=_names(partitions))

    def _revoked(
        self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]
    ) -> None:
        """Another source gets these: let what is under way arrive, so that little comes twice."""
        leaving = self._pop(consumer, partitions)
        self._await(
            lambda: self._down() or not any(p.offsets.unfinished for p in leaving.values()),
            REVOKE_SECONDS,
        )
        self._commit(consumer, leaving, asynchronous=False)
        self._leave(leaving)
        log.info("partitions given up", partitions=_names(partitions))

    def _lost(self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        """Others have had these for a while: nothing to commit, what is under way comes again."""
        self._leave(self._pop(consumer, partitions))
        log.warning("partitions lost", partitions=_names(partitions))

    def _pop(
        self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]
    ) -> dict[tuple[str, int], AssignedPartition]:
        keys = [(each.topic, each.partition) for each in partitions]
        # The client would remember it, and give nothing of them when they are assigned again.
        self._resume(consumer, self._paused.intersection(keys))
        for key in keys:
            with suppress(KeyError):
                metrics.SOURCE_LAG.remove(*map(str, key))
        return {key: self._partitions.pop(key) for key in keys if key in self._partitions}

    def _leave(self, leaving: dict[tuple[str, int], AssignedPartition]) -> None:
        self._loop.call_soon_threadsafe(self._cancel, list(leaving.values()))

    def _commit(
        self,
        consumer: confluent_kafka.Consumer,
        partitions: dict[tuple[str, int], AssignedPartition],
        asynchronous: bool,
    ) -> None:
        with self._changed:
            positions = {key: each.offsets.position for key, each in partitions.items()}
        news = [
            TopicPartition(*key, position)
            for key, position in positions.items()
            if position is not None and position != partitions[key].committed
        ]
        if not news:
            return
        try:
            if asynchronous:
                consumer.commit(offsets=news)
            else:
                consumer.commit(offsets=news, asynchronous=False)
        except KafkaException as error:
            # Only a later start suffers: it sends again what lies after the last commit.
            log.warning("commit failed", reason=error.args[0].str(), partitions=_names(news))
            return
        for each in news:
            partitions[each.topic, each.partition].committed = each.offset

    def _committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if error is None:
            return
        log.warning("commit failed", reason=error.str(), partitions=_names(partitions))
        for each in partitions:
            if partition := self._partitions.get((each.topic, each.partition)):
                partition.committed = None  # to be committed again

    def _watch_lag(self, consumer: confluent_kafka.Consumer) -> None:
        for key, partition in list(self._partitions.items()):
            _, high = consumer.get_watermark_offsets(TopicPartition(*key), cached=True)
            position = partition.offsets.position
            if high >= 0 and position is not None:
                topic, number = key
                metrics.SOURCE_LAG.labels(topic, str(number)).set(max(0, high - position))
        metrics.SOURCE_IN_FLIGHT.set(self._events)
        metrics.SOURCE_IN_FLIGHT_BYTES.set(self._bytes)

    def _report(self, seconds: float) -> None:
        with self._changed:
            delivered, self._delivered = self._delivered, 0
        if delivered or self._events:
            log.info(
                "delivered",
                events=delivered,
                per_second=round(delivered / seconds, 1),
                in_flight=self._events,
                in_flight_bytes=self._bytes,
            )

    def _await(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait until `condition` (evaluated under the lock) holds, for so long at most."""
        stopping = self._stopping
        with self._changed:
            self._awaited = condition
            self._changed.wait_for(lambda: condition() or self._stopping != stopping, seconds)
            self._awaited = None

    # -- the loop

    def _start(self, batch: list[tuple[AssignedPartition, Record]]) -> None:
        for partition, record in batch:
            task = self._loop.create_task(self._deliver(record))
            partition.tasks.add(task)
            task.add_done_callback(partial(self._done, partition, record))

    def _done(self, partition: AssignedPartition, record: Record, task: asyncio.Task[None]) -> None:
        partition.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        with self._changed:
            self._events -= 1
            self._bytes -= len(record.value)
            if not task.cancelled() and error is None:
                self._delivered += 1
                partition.offsets.finish(record.offset)
            if self._awaited and self._awaited():
                self._changed.notify()
        if error and not isinstance(error, Abandoned):
            self._failure = error  # of ours: rather end than pass over an event
            self._stop()

    def _cancel(self, partitions: list[AssignedPartition]) -> None:
        for partition in partitions:
            for task in partition.tasks:
                task.cancel()


def _names(partitions: list[TopicPartition]) -> list[str]:
    return [f"{each.topic}/{each.partition}" for each in partitions]
