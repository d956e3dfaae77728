"""Takes records from Kafka no faster than they are delivered, and commits delivered offsets.

One thread makes all calls to the Kafka client; deliveries run on the event loop.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import confluent_kafka
from confluent_kafka import KafkaException

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.events.cloudevents.kafka_record import Record
from stampede.events.delivery.dispatcher import Dispatcher
from stampede.events.delivery.in_flight import RecordsInFlight
from stampede.events.delivery.outlet import Outlet
from stampede.events.kafka.assigned_partitions import AssignedPartitions
from stampede.events.kafka.catch_up import DRAIN_SECONDS, ROOM_SECONDS, CatchUps
from stampede.events.kafka.client_options import consumer_options
from stampede.events.kafka.held_records import HeldRecords, Intake
from stampede.events.kafka.login import KafkaLogin
from stampede.events.kafka.source_health import SourceHealth
from stampede.events.kafka.topic_ids import TopicIds
from stampede.events.kafka.topic_names import TopicNames
from stampede.telemetry import source_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

# After waiting this long for room the partitions are paused: the client must be polled even then,
# but must not return more records. Not sooner, because a pause discards what was fetched ahead, up
# to 16 MB, and Kafka sends it again. Until then a rebalance waits.
PAUSE_SECONDS = 5.0
COMMIT_SECONDS = 1.0
REPORT_SECONDS = 10.0


class Consumer:
    """Takes records from Kafka and passes each to all outlets, a bounded number at a time.

    Parameters
    ----------
    settings
        The source's settings.
    outlets
        Each returns once a record is durable elsewhere; raises `Abandoned` if the source stops
        first.
    headers
        Makes the headers of a record's event.
    health
        Told what the Kafka client does.
    """

    def __init__(
        self,
        settings: Settings,
        outlets: Sequence[Outlet],
        headers: Callable[[Record], Mapping[str, str]],
        health: SourceHealth,
    ) -> None:
        self._health = health
        self._settings = settings
        self._login = KafkaLogin(settings)
        self._in_flight = RecordsInFlight(settings.in_flight, settings.in_flight_bytes)
        self._failure: BaseException | None = None
        self._names = TopicNames(settings)
        topic_ids = TopicIds(settings)
        dispatcher = Dispatcher(headers, self._fail)
        self._held = HeldRecords(topic_ids, self._in_flight)
        self._assigned = AssignedPartitions(
            settings, self._in_flight, outlets, dispatcher, health, topic_ids
        )
        self._intake = Intake(self._assigned, self._held, self._in_flight, dispatcher)
        self._catch_ups = CatchUps(settings, outlets, self._in_flight, dispatcher, health)

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
            self._stop()
            stopping.cancel()
            stop.set()  # abandons the deliveries that wait for another attempt
            await consuming
        if self._failure:
            raise self._failure

    def _stop(self) -> None:
        self._in_flight.stop()
        self._catch_ups.stop()

    def _fail(self, error: BaseException) -> None:
        self._failure = error  # a bug: end the source rather than skip an event
        self._stop()

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
            self._catch_ups.wait()
            self._assigned.leave(consumer)
        finally:
            self._names.stop()
            consumer.close()

    def _poll_until_stopped(self, consumer: confluent_kafka.Consumer) -> None:
        committed = reported = had_room = time.monotonic()
        while not self._in_flight.stopping:
            self._health.polled()
            soon = self._held.proven_soon
            most = self._in_flight.wait_for_room(0 if soon else ROOM_SECONDS)
            if most:
                had_room = time.monotonic()
            waits_on = most == 0 and time.monotonic() - had_room < PAUSE_SECONDS
            if not waits_on and (most or not soon):
                self._assigned.pause_or_resume(consumer, full=most == 0)
                self._intake.take(consumer, most or 1)  # even without room: it runs the callbacks
            self._intake.deliver_proven(consumer, now=most == 0)
            if most == 0:
                self._catch_ups.detach_held(consumer, self._assigned.all)
            now = time.monotonic()
            if now - committed >= COMMIT_SECONDS:
                committed = now
                self._tend(consumer)
            if now - reported >= REPORT_SECONDS:
                self._report(now - reported)
                reported = now

    def _tend(self, consumer: confluent_kafka.Consumer) -> None:
        self._catch_ups.tend(self._assigned.all)
        self._assigned.commit(consumer)
        self._assigned.subscribe(consumer, self._names.existing)
        self._login.renew(consumer)
        events, size = self._in_flight.events, self._in_flight.bytes
        source_metrics.SOURCE_IN_FLIGHT.set(events + self._catch_ups.events)
        source_metrics.SOURCE_IN_FLIGHT_BYTES.set(size + self._catch_ups.bytes)

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
