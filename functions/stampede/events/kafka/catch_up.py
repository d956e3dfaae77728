"""Outlets that lack what others have: where they begin, and how they catch up.

An outlet that accepts nothing is detached, so that the others go on. A second Kafka client of this
process, which is in no group, delivers to it what it lacks, from exactly the partitions of this
process. docs/adr/0069-one-fetch.md has the argument that nothing is left out.
"""

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from stampede.config.settings import Settings
from stampede.events.delivery.dispatcher import Dispatcher
from stampede.events.delivery.in_flight import AssignedPartition, PartitionKey, RecordsInFlight
from stampede.events.delivery.outlet import Outlet
from stampede.events.kafka.client_options import reader_options
from stampede.events.kafka.held_records import HeldRecords, Intake
from stampede.events.kafka.login import KafkaLogin
from stampede.events.kafka.source_health import SourceHealth
from stampede.events.kafka.topic_ids import Answer, TopicIds
from stampede.events.kafka.topics import Commit, commits, old_groups
from stampede.telemetry import source_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

ROOM_SECONDS = 1.0
# For a response of Kafka. Shorter than elsewhere, as several may be waited for in one turn.
SHORT_SECONDS = 5.0
DRAIN_SECONDS = 20.0  # less than the 30 s that Kubernetes gives


class Beginnings:
    """Where the outlets of a source begin to get the records of partitions."""

    def __init__(self, settings: Settings, outlets: Sequence[Outlet]) -> None:
        self._settings, self._outlets = settings, outlets

    def of(
        self,
        consumer: confluent_kafka.Consumer,
        partitions: Sequence[PartitionKey],
        topic_ids: Mapping[str, str],
    ) -> dict[PartitionKey, Mapping[Outlet, int] | None]:
        """The offset at which each outlet begins, by partition.

        Where the group has committed nothing, an outlet begins where the old groups of its tables
        have stopped.

        Returns
        -------
        dict
            Empty for a partition that begins where the client says; None for one whose commit is
            of another topic: it is read from its beginning.

        Raises
        ------
        KafkaException
            Kafka does not say what is committed. What an outlet lacks could be left out then.
        """
        found: dict[PartitionKey, Mapping[Outlet, int] | None] = {}
        fresh = []
        for key, commit in commits(consumer, partitions, topic_ids).items():
            if commit is None:
                fresh.append(key)
            elif commit.offset < 0:
                found[key] = None
            else:
                found[key] = {
                    each: min(map(commit.of_table, each.tables)) for each in self._outlets
                }
        return found | self._of_old_groups(consumer, fresh, topic_ids)

    def _of_old_groups(
        self,
        consumer: confluent_kafka.Consumer,
        partitions: Sequence[PartitionKey],
        topic_ids: Mapping[str, str],
    ) -> dict[PartitionKey, Mapping[Outlet, int]]:
        """Where the old groups have stopped; those that have read nothing, at Kafka's first."""
        if not partitions:
            return {}
        old = {
            table: _commits_of(self._settings, group, partitions, topic_ids)
            for table, group in old_groups(self._settings.group).items()
        }
        found: dict[PartitionKey, Mapping[Outlet, int]] = {}
        for key in partitions:
            commits_by_table = {table: each.get(key) for table, each in old.items()}
            known = {
                t: each.offset for t, each in commits_by_table.items() if each and each.offset >= 0
            }
            found[key] = {}
            if known:
                low, _ = consumer.get_watermark_offsets(TopicPartition(*key), SHORT_SECONDS)
                found[key] = {
                    each: min(known.get(table, low) for table in each.tables)
                    for each in self._outlets
                }
        return found

    def partition(
        self, topic_id: str | None, begin: Mapping[Outlet, int] | None
    ) -> AssignedPartition:
        """A partition that is read for the outlets that are furthest; the others are detached."""
        partition = AssignedPartition(topic_id, self._outlets)
        if begin and topic_id is not None:
            partition.begin = max(begin.values())
            for outlet, position in begin.items():
                if position < partition.begin:
                    partition.detach(outlet, position)
        return partition


def _commits_of(
    settings: Settings,
    group: str,
    partitions: Sequence[PartitionKey],
    topic_ids: Mapping[str, str],
) -> dict[PartitionKey, Commit | None]:
    """What another group has committed; nothing if this login may not ask for it."""
    options = reader_options(settings, KafkaLogin(settings).options) | {"group.id": group}
    consumer = confluent_kafka.Consumer(options)
    try:
        return commits(consumer, partitions, topic_ids, SHORT_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise
        return {}
    finally:
        consumer.close()


class CatchUps:
    """Detaches outlets and attaches them again. All methods are called in the source's thread.

    Parameters
    ----------
    settings
        The source's settings.
    outlets
        Those of the source.
    in_flight
        The records that the source itself delivers.
    dispatcher
        Delivers records.
    health
        Told that the clients are polled.
    """

    def __init__(
        self,
        settings: Settings,
        outlets: Sequence[Outlet],
        in_flight: RecordsInFlight,
        dispatcher: Dispatcher,
        health: SourceHealth,
    ) -> None:
        self._settings = settings
        self._in_flight = in_flight
        self._dispatcher = dispatcher
        several = outlets if len(outlets) > 1 else ()
        self._readers = {
            outlet: CatchUp(settings, outlet, in_flight, dispatcher, health) for outlet in several
        }

    def detach_held(
        self,
        consumer: confluent_kafka.Consumer,
        partitions: Mapping[PartitionKey, AssignedPartition],
    ) -> None:
        """Detach the outlet for which all others wait, if there is one.

        To be called while there is no room for more records.
        """
        outlet = self._in_flight.held_by(self._settings.detach_seconds)
        if outlet is None or outlet not in self._readers:
            return
        if all(each.down for each in self._readers if each is not outlet):
            return  # none would go on
        held = [
            key
            for key, each in partitions.items()
            if any(other is not outlet for other in each.attached) and outlet in each.offsets
        ]
        positions = {key: _begun(consumer, key, partitions[key]) for key in held}
        busy = [partitions[key] for key in held]
        busy += [each.behind[outlet] for each in busy if outlet in each.behind]
        with self._in_flight.lock:
            for key, known in positions.items():
                position = partitions[key].position_of(outlet)
                if (position := known if position is None else position) is not None:
                    partitions[key].detach(outlet, position)
            if held:
                self._in_flight.abandon(outlet)
        if held:
            self._readers[outlet].begin()
            self._dispatcher.cancel(busy, outlet)
            log.warning(
                "outlet takes no events: the others go on, and it catches up later",
                outlet=outlet.name,
                partitions=[f"{topic}/{number}" for topic, number in held],
            )

    def tend(self, partitions: Mapping[PartitionKey, AssignedPartition]) -> None:
        """Read for detached outlets, and attach those that have nearly caught up."""
        for outlet, reader in self._readers.items():
            with self._in_flight.lock:
                for each in partitions.values():
                    if outlet in each.behind:
                        self._attach(outlet, each, reader.works)
                behind = {
                    key: each.behind[outlet]
                    for key, each in partitions.items()
                    if outlet in each.behind
                }
            reader.read(behind)
            for table in outlet.tables:
                source_metrics.SOURCE_DETACHED.labels(table).set(len(behind))

    def _attach(self, outlet: Outlet, partition: AssignedPartition, works: bool) -> None:
        lagging = partition.behind[outlet]
        position = lagging.offsets[outlet].position
        if lagging.until is not None and position is not None and position >= lagging.until:
            del partition.behind[outlet]
        elif works and outlet not in partition.offsets and not partition.passed_over:
            partition.attach(outlet, self._settings.in_flight)

    @property
    def events(self) -> int:
        """How many records of detached outlets are in flight."""
        return sum(each.in_flight.events for each in self._readers.values())

    @property
    def bytes(self) -> int:
        """How many bytes those have."""
        return sum(each.in_flight.bytes for each in self._readers.values())

    def stop(self) -> None:
        """Take no more records."""
        for reader in self._readers.values():
            reader.in_flight.stop()

    def wait(self) -> None:
        """Wait until what is in flight is delivered, as long as the source does."""
        for reader in self._readers.values():
            reader.wait()


def _begun(
    consumer: confluent_kafka.Consumer, key: PartitionKey, partition: AssignedPartition
) -> int | None:
    """Where a partition begins of which nothing was taken yet; None if that is not known."""
    if partition.begin is not None or partition.passed_over:
        return partition.begin
    with suppress(KafkaException):
        return consumer.get_watermark_offsets(TopicPartition(*key), SHORT_SECONDS)[0]
    return None


class CatchUp:
    """Delivers to one outlet what it lacks of partitions, in a thread with a client of its own.

    It runs while there are such partitions. It holds as many records as the source, and half as
    many bytes.
    """

    def __init__(
        self,
        settings: Settings,
        outlet: Outlet,
        in_flight: RecordsInFlight,
        dispatcher: Dispatcher,
        health: SourceHealth,
    ) -> None:
        self.in_flight = RecordsInFlight(
            settings.in_flight, settings.in_flight_bytes // 2, in_flight.lock
        )
        self._settings = settings
        self._outlet = outlet
        self._dispatcher = dispatcher
        self._health = health
        self._thread: threading.Thread | None = None
        self._wanted: Mapping[PartitionKey, AssignedPartition] = {}
        self._assigned: Mapping[PartitionKey, AssignedPartition] = {}
        self._since = time.monotonic()

    @property
    def works(self) -> bool:
        """Whether the outlet has accepted an event since it was detached, and is not down."""
        return self._outlet.delivered > self._since and not self._outlet.down

    def begin(self) -> None:
        """Note that the outlet was just detached."""
        self._since = time.monotonic()

    def read(self, partitions: Mapping[PartitionKey, AssignedPartition]) -> None:
        """Read these partitions from now on, and no others."""
        self._wanted = partitions
        idle = self._thread is None or not self._thread.is_alive()
        if partitions and idle and not self.in_flight.stopping:
            name = f"catch up {self._outlet.name}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait until it has stopped."""
        if self._thread:
            self._thread.join()

    # -- in its thread

    def _run(self) -> None:
        try:
            self._read_wanted()
        except Exception as error:  # the source ends, and the next one goes on from its commits
            self._dispatcher.failed(error)
        finally:
            self._health.ended(self._outlet.name)

    def _read_wanted(self) -> None:
        login = KafkaLogin(self._settings)
        held = HeldRecords(TopicIds(self._settings), self.in_flight)
        intake = Intake(self, held, self.in_flight, self._dispatcher)
        consumer = confluent_kafka.Consumer(reader_options(self._settings, login.options))
        self._assigned = {}
        try:
            while self._wanted and not self.in_flight.stopping:
                self._health.polled(self._outlet.name)
                self._assign(consumer)
                soon = held.proven_soon
                if most := self.in_flight.wait_for_room(0 if soon else ROOM_SECONDS):
                    intake.take(consumer, most)
                intake.deliver_proven(consumer, now=not most)
                login.renew(consumer)
            held.drop()
            self.in_flight.wait_for(lambda: self.in_flight.events == 0, DRAIN_SECONDS)
        finally:
            consumer.close()

    def _assign(self, consumer: confluent_kafka.Consumer) -> None:
        wanted = {key: each for key, each in self._wanted.items() if not each.left}
        if wanted != self._assigned:
            self._assigned = wanted
            consumer.assign([TopicPartition(*key, each.next or 0) for key, each in wanted.items()])

    @property
    def topics(self) -> Collection[str]:
        """Topics whose ids are asked for."""
        return {topic for topic, _ in self._assigned}

    def of(self, message: confluent_kafka.Message) -> AssignedPartition | None:
        """The partition of a message; None if the message is not to be taken."""
        key, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
        partition = self._assigned.get(key)
        if partition is None or partition.left:
            return None
        if partition.passed_over:
            if partition.again_at is None:
                partition.again_at = offset
            return None
        before = partition.next is not None and offset < partition.next
        beyond = partition.until is not None and (partition.next or 0) >= partition.until
        return None if (before or beyond) and not message.error() else partition

    def learn(self, consumer: confluent_kafka.Consumer, response: Answer) -> None:
        """Go on with partitions that were passed over and whose topic is the same."""
        for key, partition in self._assigned.items():
            same = response.ids.get(key[0]) == partition.topic_id
            if partition.passed_over and partition.again_at is not None and same:
                with suppress(KafkaException):  # the next answer tries again
                    consumer.seek(TopicPartition(*key, partition.again_at))
                    partition.next = partition.again_at
                    partition.passed_over, partition.again_at = False, None

    def commit_beginnings(self, consumer: confluent_kafka.Consumer) -> None:
        """Nothing: the source notes the positions in its commits."""
