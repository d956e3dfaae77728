"""Which offset is committed for several outlets, and when one of them holds the others."""

import time
from collections.abc import Mapping

import pytest

from stampede.events.cloudevents.kafka_record import Record
from stampede.events.delivery.in_flight import AssignedPartition, RecordsInFlight, Taken
from stampede.events.delivery.outlet import Outlet


class Nowhere:
    """A delivery that is never used."""

    down = False

    async def deliver(self, headers: Mapping[str, str], record: Record) -> None:
        raise NotImplementedError


class Two:
    """A partition of two outlets, and its records in flight."""

    def __init__(self) -> None:
        self.cutouts = Outlet("cutouts", ["cutouts"], Nowhere())
        self.detections = Outlet("detections", ["detections"], Nowhere())
        self.in_flight = RecordsInFlight(100, 1 << 20)
        self.partition = AssignedPartition("A", [self.cutouts, self.detections])

    def take(self, *offsets: int, partition: AssignedPartition | None = None) -> list[Taken]:
        partition = partition or self.partition
        records = [Record("alerts", 0, offset, None, None, (), b"12345") for offset in offsets]
        self.in_flight.count(records)
        partition.next = offsets[-1] + 1
        return self.in_flight.begin([(partition, record) for record in records])

    def finish(self, taken: Taken, *outlets: Outlet) -> None:
        for outlet in outlets:
            self.in_flight.remove(taken, outlet, delivered=True)


@pytest.fixture
def two() -> Two:
    return Two()


def test_the_least_of_the_positions_is_committed(two: Two) -> None:
    assert two.partition.position == (None, {})
    first, second = two.take(5, 6)
    two.finish(first, two.cutouts)
    two.finish(second, two.cutouts)
    assert two.partition.position == (5, {})
    two.finish(first, two.detections)
    assert two.partition.position == (6, {})
    two.in_flight.reach(two.partition, 9)
    two.finish(second, two.detections)
    assert two.partition.position == (9, {}), "the end of the partition is that of both"


def test_a_record_has_its_room_until_the_last_outlet_is_done(two: Two) -> None:
    (taken,) = two.take(5)
    assert (two.in_flight.events, two.in_flight.bytes) == (1, 5)
    two.finish(taken, two.detections)
    assert (two.in_flight.events, two.in_flight.bytes) == (1, 5)
    two.finish(taken, two.cutouts)
    assert (two.in_flight.events, two.in_flight.bytes) == (0, 0)
    assert two.in_flight.reset_delivered() == 1


def test_an_outlet_is_detached_and_attached_without_a_gap(two: Two) -> None:
    first, second = two.take(5, 6)
    two.finish(first, two.cutouts, two.detections)
    two.finish(second, two.detections)
    two.partition.detach(two.cutouts, 6)
    two.in_flight.abandon(two.cutouts)
    assert two.in_flight.events == 0
    assert two.partition.position == (7, {"cutouts": 6})
    assert two.partition.least == 6
    (third,) = two.take(7)
    assert list(third.waiting) == [two.detections]
    two.finish(third, two.detections)
    assert two.partition.position == (8, {"cutouts": 6})

    two.partition.attach(two.cutouts, most_behind=1)
    assert two.cutouts not in two.partition.offsets, "it is two behind"
    two.partition.attach(two.cutouts, most_behind=2)
    lagging = two.partition.behind[two.cutouts]
    assert lagging.until == 8
    (fourth,) = two.take(8)
    assert set(fourth.waiting) == {two.cutouts, two.detections}
    two.finish(fourth, two.cutouts, two.detections)
    assert two.partition.position == (9, {"cutouts": 6}), "6 and 7 are still to come"
    for taken in two.take(6, 7, partition=lagging):
        assert list(taken.waiting) == [two.cutouts]
        two.finish(taken, two.cutouts)
    assert lagging.offsets[two.cutouts].position == lagging.until
    del two.partition.behind[two.cutouts]
    assert two.partition.position == (9, {})


def test_an_outlet_is_attached_where_its_own_partition_is_further(two: Two) -> None:
    """That one may have overtaken the source, which waits for room."""
    (taken,) = two.take(5)
    two.finish(taken, two.detections)
    two.partition.detach(two.cutouts, 5)
    lagging = two.partition.behind[two.cutouts]
    for taken in two.take(5, 6, 7, partition=lagging):
        two.finish(taken, two.cutouts)
    two.partition.attach(two.cutouts, most_behind=10)
    assert lagging.until == 8
    (sixth, eighth) = two.take(6, 8)
    assert list(sixth.waiting) == [two.detections], "it has this one already"
    assert set(eighth.waiting) == {two.cutouts, two.detections}


def test_a_delivery_that_ends_after_its_outlet_was_detached_counts_for_nothing(two: Two) -> None:
    (taken,) = two.take(5)
    two.partition.detach(two.cutouts, 5)
    two.in_flight.abandon(two.cutouts)
    two.finish(taken, two.cutouts)
    two.finish(taken, two.detections)
    assert two.in_flight.events == 0
    assert two.partition.position == (6, {"cutouts": 5})


def test_a_lagging_outlet_that_is_detached_again_begins_where_it_was(two: Two) -> None:
    (taken,) = two.take(5)
    two.finish(taken, two.detections)
    two.partition.detach(two.cutouts, 3)
    first = two.partition.behind[two.cutouts]
    two.partition.attach(two.cutouts, most_behind=10)
    position = two.partition.position_of(two.cutouts)
    assert position == 3
    two.partition.detach(two.cutouts, position)
    assert first.left
    assert two.partition.behind[two.cutouts].until is None
    assert two.partition.position == (6, {"cutouts": 3})


def test_the_outlet_that_holds_the_others_is_found(two: Two) -> None:
    assert two.in_flight.held_by(0) is None
    taken = two.take(*range(20))
    assert two.in_flight.held_by(0) is None, "they wait for both"
    for each in taken[:18]:
        two.finish(each, two.detections)
    assert two.in_flight.held_by(0) is two.cutouts, "two are stuck elsewhere"
    assert two.in_flight.held_by(60) is None, "not for long yet"
    time.sleep(0.05)
    assert two.in_flight.held_by(0.04) is two.cutouts
    two.cutouts.delivered = time.monotonic()
    assert two.in_flight.held_by(0.04) is None, "it has just taken one: it is slow, not down"
    assert two.in_flight.held_by(0) is two.cutouts
    time.sleep(0.05)
    assert two.in_flight.wait_for_room(0) > 0
    assert two.in_flight.held_by(0.04) is None, "there was room meanwhile"


def test_after_an_outage_of_both_one_is_not_left_behind_at_once(two: Two) -> None:
    taken = two.take(*range(20))
    assert two.in_flight.held_by(0) is None
    time.sleep(0.05)
    for each in taken:
        two.finish(each, two.detections)
    assert two.in_flight.held_by(0.04) is None
