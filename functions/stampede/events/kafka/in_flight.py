"""The records that were taken from Kafka and are not delivered yet, with bounds on them.

The Kafka thread and the event loop share this bookkeeping; one lock guards all of it.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence

from stampede.events.cloudevents.kafka_record import Record
from stampede.events.delivery.offset_tracker import Offsets

BATCH = 100  # most records taken at once

PartitionKey = tuple[str, int]  # topic and partition number


class AssignedPartition:
    """A partition assigned to this source, and its records in flight.

    Attributes
    ----------
    topic_id
        The id of the topic since before its first record was fetched. `topic_ids.NONE` if Kafka
        knows no ids; None while it is not known.
    passed_over
        Whether its records are passed over, because the topic is not known or not there.
    again_at
        The offset of the first record that was passed over.
    next
        The offset after the last record taken.
    left
        Whether it was given up, or its topic was made anew.
    """

    def __init__(self, topic_id: str | None = None) -> None:
        self.topic_id = topic_id
        self.passed_over = topic_id is None
        self.again_at: int | None = None
        self.next: int | None = None
        self.left = False
        self.opened = False  # whether its first position was committed
        self.offsets = Offsets()
        self.committed: int | None = None
        self.tasks: set[asyncio.Task[None]] = set()  # used by the event loop only


class RecordsInFlight:
    """Counts the records in flight, and lets the Kafka thread wait for a change.

    Parameters
    ----------
    most_events, most_bytes
        Bounds on all records in flight.
    """

    def __init__(self, most_events: int, most_bytes: int) -> None:
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._awaited: Callable[[], bool] | None = None
        self._delivered = 0
        self.events = 0
        self.bytes = 0
        self.stopping = False

    def count(self, records: Sequence[Record]) -> None:
        """Count records that were taken from Kafka."""
        with self._changed:
            self.events += len(records)
            self.bytes += sum(record.size for record in records)

    def begin(self, batch: Sequence[tuple[AssignedPartition, Record]]) -> None:
        """Note that records which were counted are being delivered."""
        with self._changed:
            for partition, record in batch:
                partition.offsets.take(record.offset)

    def drop(self, records: Sequence[Record]) -> None:
        """Count no longer records whose delivery never began."""
        with self._changed:
            self.events -= len(records)
            self.bytes -= sum(record.size for record in records)

    def reach(self, partition: AssignedPartition, offset: int) -> None:
        """Note that a partition has no more records for now; see `Offsets.reach`."""
        with self._changed:
            partition.offsets.reach(offset)

    def remove(self, partition: AssignedPartition, record: Record, delivered: bool) -> None:
        """Count a record as no longer in flight; only a delivered one may be committed."""
        with self._changed:
            self.events -= 1
            self.bytes -= record.size
            if delivered:
                self._delivered += 1
                partition.offsets.finish(record.offset)
            if self._awaited and self._awaited():
                self._changed.notify()

    def stop(self) -> None:
        """Set `stopping`, and end a wait that is under way."""
        with self._changed:
            self.stopping = True
            self._changed.notify()

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait until `condition` holds or `stop` is called, at most `seconds`.

        `condition` is evaluated under the lock. After `stop` was called, a wait lasts until
        `condition` holds.
        """
        was_stopping = self.stopping
        with self._changed:
            self._awaited = condition
            self._changed.wait_for(lambda: condition() or self.stopping != was_stopping, seconds)
            self._awaited = None

    def wait_for_room(self, seconds: float) -> int:
        """How many records may be taken; 0 if there is no room within `seconds`."""
        # A tenth must be free. Otherwise every delivered event would wake the thread for one more.
        self.wait_for(
            lambda: self.events <= 0.9 * self._most_events and self.bytes <= 0.9 * self._most_bytes,
            seconds,
        )
        with self._changed:
            mean_bytes = max(1, self.bytes // max(1, self.events))
            free_events = self._most_events - self.events
            free_bytes = self._most_bytes - self.bytes
            return max(0, min(BATCH, free_events, free_bytes // mean_bytes))

    def positions(
        self, partitions: Mapping[PartitionKey, AssignedPartition]
    ) -> dict[PartitionKey, int | None]:
        """The position to commit of each partition, all at the same moment."""
        with self._changed:
            return {key: partition.offsets.position for key, partition in partitions.items()}

    def reset_delivered(self) -> int:
        """How many records were delivered since the last call."""
        with self._changed:
            delivered, self._delivered = self._delivered, 0
            return delivered
