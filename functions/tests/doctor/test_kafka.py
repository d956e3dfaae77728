"""What `stampede doctor` says of the lag if Kafka does not say what was read."""

from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from stampede.config.settings import Settings
from stampede.doctor import kafka
from stampede.doctor.finding import Installation, Level


class Closed:
    """A Kafka that does not let us ask for offsets of groups."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> "Closed":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def watermarks(self, topics: list[str]) -> dict[tuple[str, int], tuple[int, int]]:
        return {(topic, 0): (0, 10) for topic in topics}

    def topic_ids(self, topics: list[str]) -> dict[str, str]:
        return {}

    def commits(self, *_: Any) -> dict[tuple[str, int], None]:
        return {}


def test_a_group_that_cannot_be_asked_for_has_not_read_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka, "KafkaTopics", Closed)
    settings = Settings(kafka="kafka:9092", topics="alerts")
    found = [finding.fault for finding in kafka.lag(Installation(settings, {}, installed=False))]
    assert found == ["Kafka does not say what the group stampede has read"]


def night(days: int, programme: int = 1) -> str:
    """The topic of some days ago."""
    return f"ztf_{datetime.now(UTC) - timedelta(days):%Y%m%d}_programid{programme}"


class Nights(Closed):
    """A Kafka with a topic of two partitions for each of some past days."""

    days = (1, 2, 9, 10, 11, 12)
    read = MappingProxyType({9: 5, 10: 10, 11: 10})
    """What the group has committed of a day's partitions, of ten messages each."""

    def names(self) -> frozenset[str]:
        return frozenset(
            f"ztf_{datetime.now(UTC) - timedelta(day):%Y%m%d}_programid{programme}"
            for day in self.days
            for programme in (1, 2)
        )

    def watermarks(self, topics: list[str]) -> dict[tuple[str, int], tuple[int, int]]:
        return {(topic, number): (0, 10) for topic in topics for number in (0, 1)}

    def committed(
        self, group: str, partitions: list[tuple[str, int]], ids: object
    ) -> dict[str, dict[tuple[str, int], int | None]]:
        by_topic = {
            f"ztf_{datetime.now(UTC) - timedelta(day):%Y%m%d}_programid1": offset
            for day, offset in self.read.items()
        }
        read = {each: by_topic.get(each[0]) for each in partitions}
        return {"cutouts": read, "detections": read}


def faults(check: Any, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> list[str]:
    monkeypatch.setattr(kafka, "KafkaTopics", Nights)
    installation = Installation(Settings(kafka="kafka:9092", **settings), {}, installed=True)
    return [finding.fault for finding in check(installation)]


def test_topics_that_nobody_reads_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programme 2 of the window's nights; and nights that left it unread, from the first on."""
    day = {each: f"{datetime.now(UTC) - timedelta(each):%Y%m%d}" for each in Nights.days}
    found = faults(kafka.unread, monkeypatch, topics="ztf_{YYYYMMDD}_programid1")
    like = "which is like ztf_{YYYYMMDD}_programid1"
    assert found[:2] == [
        f"nobody reads the topic ztf_{day[each]}_programid2, {like}" for each in (2, 1)
    ]
    assert found[2:] == [
        f"ztf_{day[9]}_programid1 is no more read, and {table} has 10 of its messages still to read"
        for table in ("cutouts", "detections")
    ]
    both = "ztf_{YYYYMMDD:30}_programid1,!ztf_{YYYYMMDD}_programid2"
    assert faults(kafka.unread, monkeypatch, topics=both) == []


def test_a_family_without_a_topic_for_some_nights_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Nights,
        "names",
        lambda _: frozenset({night(1, programme=2), night(4)}),
    )
    topics = "ztf_{YYYYMMDD}_programid1,!ztf_{YYYYMMDD}_programid2"
    (found,) = faults(kafka.unread, monkeypatch, topics=topics)
    assert found == (
        f"ztf_{{YYYYMMDD}}_programid1 has had no topic for some nights, and there is "
        f"{night(1, programme=2)}"
    )


def test_sources_share_the_partitions_of_one_night(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of two nights are not read at the same time for long."""
    family = "ztf_{YYYYMMDD}_programid1"
    assert faults(kafka.kafka, monkeypatch, topics=family, source_replicas=2) == []
    (found,) = faults(kafka.kafka, monkeypatch, topics=family, source_replicas=3)
    assert found.startswith(f"3 sources would share 2 partitions of {family}")
    (found,) = faults(kafka.kafka, monkeypatch, topics="other_{n}")
    assert found == "Kafka has no topic of other_{n} now"


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"no.such.option": "1"}, 'No such configuration property: "no.such.option"'),
        ({"fetch.min.bytes": "lots"}, "fetch.min.bytes"),
    ],
)
def test_an_option_that_librdkafka_refuses_is_named(options: dict[str, str], part: str) -> None:
    """Before an installation too, where nothing has made a client yet."""
    settings = Settings(kafka="127.0.0.1:1", topics="alerts", kafka_options=options)
    (found,) = kafka.kafka(Installation(settings, {}, installed=False))
    assert found.level is Level.ERROR
    assert "wrong options" in found.fault
    assert part in found.fault


class Waiting(Closed):
    """A Kafka with ten messages; the group commits what `positions` say, one after the other."""

    positions: ClassVar[list[tuple[int, int]]] = []
    """Of cutouts and of detections."""

    def commits(self, *_: Any) -> dict[tuple[str, int], None]:
        return {("alerts", 0): None}

    def committed(
        self, group: str, partitions: list[tuple[str, int]], ids: object
    ) -> dict[str, dict[tuple[str, int], int | None]]:
        now = self.positions[0]
        if len(self.positions) > 1:
            del self.positions[0]
        return {
            table: {("alerts", 0): offset}
            for table, offset in zip(("cutouts", "detections"), now, strict=True)
        }


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ([(10, 10)], []),
        ([(3, 10)], ["7 messages are not delivered for cutouts, and none of them was within 0 s"]),
        ([(3, 4), (3, 4), (3, 4), (3, 6)], ["7 messages are not delivered for cutouts, and"]),
        ([(3, 4), (3, 4), (3, 4), (10, 10)], []),
    ],
)
def test_messages_that_wait_are_a_fault_unless_some_are_delivered(
    monkeypatch: pytest.MonkeyPatch, positions: list[tuple[int, int]], expected: list[str]
) -> None:
    monkeypatch.setattr(kafka, "HELD_SECONDS", 0.2)
    monkeypatch.setattr(kafka, "STEP_SECONDS", 0.01)
    monkeypatch.setattr(kafka, "KafkaTopics", Waiting)
    monkeypatch.setattr(Waiting, "positions", [*positions])
    settings = Settings(kafka="kafka:9092", topics="alerts")
    found = [finding.fault for finding in kafka.lag(Installation(settings, {}))]
    assert len(found) == len(expected)
    assert all(fault.startswith(start) for fault, start in zip(found, expected, strict=True))
