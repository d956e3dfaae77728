"""The records that were taken from Kafka and are not delivered yet, with bounds on them.

The Kafka threads and the event loop share this bookkeeping; one lock guards all of it.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from stampede.events.cloudevents.kafka_record import Record
from stampede.events.delivery.offset_tracker import Offsets
from stampede.events.delivery.outlet import Outlet

BATCH = 100  # most records taken at once
NEARLY_ALL = 0.9  # of the records in flight: a few may be stuck elsewhere

PartitionKey = tuple[str, int]  # topic and partition number
Position = tuple[int | None, Mapping[str, int]]
"""The offset to commit, and the tables that lack more, with their offsets."""


class AssignedPartition:
    """A partition assigned to this source, and its records in flight.

    Parameters
    ----------
    topic_id
        The id of the topic since before its first record was fetched. `topic_ids.NONE` if Kafka
        knows no ids; None while it is not known.
    outlets
        Those that get its records.

    Attributes
    ----------
    passed_over
        Whether its records are passed over, because the topic is not known or not there.
    again_at
        The offset of the first record that was passed over.
    next
        The offset after the last record taken.
    until
        The offset at which to stop; None: there is none.
    left
        Whether it was given up, or its topic was made anew.
    offsets
        What was taken for each outlet.
    behind
        The outlets that are detached: each gets its records by a partition of its own.
    """

    def __init__(self, topic_id: str | None = None, outlets: Iterable[Outlet] = ()) -> None:
        self.topic_id = topic_id
        self.passed_over = topic_id is None
        self.again_at: int | None = None
        self.begin: int | None = None  # where the group had committed
        self.next: int | None = None
        self.until: int | None = None
        self.left = False
        self.opened = False  # whether its first position was committed
        self.offsets = {outlet: Offsets() for outlet in outlets}
        self.behind: dict[Outlet, AssignedPartition] = {}
        self.committed: Position | None = None
        self.tasks: dict[asyncio.Task[None], Outlet] = {}  # used by the event loop only

    @property
    def attached(self) -> list[Outlet]:
        """The outlets that lack nothing but what is in flight here."""
        return [outlet for outlet in self.offsets if outlet not in self.behind]

    @property
    def unfinished(self) -> int:
        """How many deliveries are not finished."""
        return sum(offsets.unfinished for offsets in self.offsets.values())

    def position_of(self, outlet: Outlet) -> int | None:
        """The offset below which an outlet has everything; None if that is not known yet."""
        if outlet in self.behind:
            return self.behind[outlet].offsets[outlet].position
        return self.offsets[outlet].position if outlet in self.offsets else None

    @property
    def position(self) -> Position:
        """The position to commit: that of the attached outlets, and which tables lack more."""
        known = [self.offsets[outlet].position for outlet in self.attached]
        positions = [each for each in known if each is not None]
        behind = {
            table: position
            for outlet in self.behind
            for table in outlet.tables
            if (position := self.position_of(outlet)) is not None
        }
        return (min(positions) if len(positions) == len(known) > 0 else None), behind

    @property
    def least(self) -> int | None:
        """The offset below which all outlets have everything; None if that is not known yet."""
        position, behind = self.position
        return None if position is None else min([position, *behind.values()])

    def detach(self, outlet: Outlet, position: int) -> None:
        """Deliver no more to an outlet; it has everything below `position`."""
        if before := self.behind.pop(outlet, None):
            before.left = True
        self.offsets.pop(outlet, None)
        lagging = self.behind[outlet] = AssignedPartition(self.topic_id)
        lagging.offsets = {outlet: Offsets(position)}
        lagging.next = position

    def attach(self, outlet: Outlet, most_behind: int) -> None:
        """Deliver to a detached outlet again, if it is at most so many offsets behind.

        Its own partition stops where this one begins for it, so it gets each record once.
        """
        lagging, (position, _) = self.behind[outlet], self.position
        lacks = self.position_of(outlet)
        if position is None or lacks is None or lagging.passed_over or lagging.until is not None:
            return
        begin = max(position, self.next or 0, lagging.next or 0)
        if begin - lacks <= most_behind:
            lagging.until = begin
            self.offsets[outlet] = Offsets(begin)

    def leave(self) -> None:
        """Note that another source delivers its records, or that its topic was made anew."""
        self.left = True
        for lagging in self.behind.values():
            lagging.left = True


class Taken:
    """A record in flight, and the outlets that have not accepted it."""

    def __init__(self, partition: AssignedPartition, record: Record) -> None:
        self.partition, self.record = partition, record
        self.waiting: dict[Outlet, Offsets] = {}


class RecordsInFlight:
    """Counts the records in flight, and lets the Kafka thread wait for a change.

    Parameters
    ----------
    most_events, most_bytes
        Bounds on all records in flight.
    lock
        Guards the partitions too; shared by all that have partitions of the same source.
    """

    def __init__(
        self, most_events: int, most_bytes: int, lock: "threading.RLock | None" = None
    ) -> None:
        self._most_events = most_events
        self._most_bytes = most_bytes
        self.lock = lock or threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._awaited: Callable[[], bool] | None = None
        self._delivered = 0
        self._taken: set[Taken] = set()
        self._held: tuple[Outlet, float] | None = None  # which outlet holds the others since when
        self.events = 0
        self.bytes = 0
        self.stopping = False

    def count(self, records: Sequence[Record]) -> None:
        """Count records that were taken from Kafka."""
        with self._changed:
            self.events += len(records)
            self.bytes += sum(record.size for record in records)

    def begin(self, batch: Sequence[tuple[AssignedPartition, Record]]) -> list[Taken]:
        """Note that records which were counted are being delivered, and return them."""
        begun = []
        with self._changed:
            for partition, record in batch:
                taken = Taken(partition, record)
                for outlet, offsets in partition.offsets.items():
                    if offsets.wants(record.offset):
                        offsets.take(record.offset)
                        taken.waiting[outlet] = offsets
                self._taken.add(taken)
                if taken.waiting:
                    begun.append(taken)
                else:
                    self._end(taken)
        return begun

    def drop(self, records: Sequence[Record]) -> None:
        """Count no longer records whose delivery never began."""
        with self._changed:
            self.events -= len(records)
            self.bytes -= sum(record.size for record in records)

    def reach(self, partition: AssignedPartition, offset: int) -> None:
        """Note that a partition has no more records for now; see `Offsets.reach`."""
        with self._changed:
            for offsets in partition.offsets.values():
                offsets.reach(offset)

    def remove(self, taken: Taken, outlet: Outlet, delivered: bool) -> None:
        """Note that an outlet is done with a record; only a delivered one may be committed."""
        with self._changed:
            offsets = taken.waiting.pop(outlet, None)
            if offsets is None:
                return  # the outlet was detached
            if delivered:
                offsets.finish(taken.record.offset)
            if not taken.waiting:
                self._delivered += delivered
                self._end(taken)

    def abandon(self, outlet: Outlet) -> None:
        """Let no record wait for an outlet any more."""
        with self._changed:
            for taken in list(self._taken):
                if taken.waiting.pop(outlet, None) is not None and not taken.waiting:
                    self._end(taken)

    def _end(self, taken: Taken) -> None:
        self._taken.discard(taken)
        self.events -= 1
        self.bytes -= taken.record.size
        if self._awaited and self._awaited():
            self._changed.notify()

    def held_by(self, seconds: float) -> Outlet | None:
        """The outlet for which nearly all records wait, and wait so long that it took none.

        To be called while there is no room, and not seldom: the time counts from when the outlet
        was first found. After an outage of all outlets one of them is back before the other.
        """
        with self._changed:
            alone = Counter(
                outlet for each in self._taken if len(each.waiting) == 1 for outlet in each.waiting
            )
            most = alone.most_common(1)
            if not most or most[0][1] < NEARLY_ALL * len(self._taken):
                self._held = None
                return None
            outlet, now = most[0][0], time.monotonic()
            if (
                self._held is None
                or self._held[0] is not outlet
                or outlet.delivered > self._held[1]
            ):
                self._held = outlet, now
            return outlet if now - self._held[1] >= seconds else None

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
            room = max(0, min(BATCH, free_events, free_bytes // mean_bytes))
            if room:
                self._held = None
            return room

    def positions(
        self, partitions: Mapping[PartitionKey, AssignedPartition]
    ) -> dict[PartitionKey, Position]:
        """The position to commit of each partition, all at the same moment."""
        with self._changed:
            return {key: partition.position for key, partition in partitions.items()}

    def reset_delivered(self) -> int:
        """How many records were delivered since the last call."""
        with self._changed:
            delivered, self._delivered = self._delivered, 0
            return delivered
