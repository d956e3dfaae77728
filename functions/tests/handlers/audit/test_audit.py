"""`audit` against a real Kafka and a store in memory."""

import time
from contextlib import suppress

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.errors import SetupError
from stampede.events.kafka.topics import KafkaTopics
from stampede.handlers.audit.audit import MissingObjects, audit, missing_by_kind
from stampede.store.integrity.ledger import expect
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import TABLES
from stampede.store.tables.table import Table


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def settings(kafka) -> Settings:
    return Settings(kafka=kafka.bootstrap)


def produce(settings: Settings, topic: str, counts: dict[int, int]) -> None:
    producer = Producer({"bootstrap.servers": settings.kafka})
    for partition, count in counts.items():
        for _ in range(count):
            producer.produce(topic, b"alert", partition=partition)
    assert producer.flush(30) == 0


def store(objects: Objects, table: str, offsets: dict) -> None:
    empty = pa.Table.from_pylist([], schema=TABLES[table].schema)
    Table(objects, TABLES[table]).append(empty, Coverage.of(offsets))


def topic_id(settings: Settings, topic: str) -> str:
    with KafkaTopics(settings) as kafka:
        return kafka.topic_ids([topic])[topic]


def commit(
    settings: Settings, topic: str, offsets: dict[int, int], note: str = "", group: str = ""
) -> None:
    """Commit offsets as the source of both tables, or as another group."""
    consumer = Consumer({"bootstrap.servers": settings.kafka, "group.id": group or settings.group})
    wanted = [TopicPartition(topic, *each, metadata=note) for each in offsets.items()]
    deadline = time.monotonic() + 30
    while True:
        try:
            consumer.commit(offsets=wanted, asynchronous=False)
            break
        except KafkaException:  # a new group has no coordinator for a moment
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
    consumer.close()


def make_anew(settings: Settings, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": settings.kafka})
    old = topic_id(settings, topic)
    admin.delete_topics([topic])[topic].result(30)
    deadline = time.monotonic() + 60
    while True:
        with suppress(KafkaException):  # until the old one is gone
            admin.create_topics([NewTopic(topic, 4)])[topic].result(30)
        with suppress(SetupError, KeyError):
            if topic_id(settings, topic) != old:
                return
        assert time.monotonic() < deadline
        time.sleep(0.1)


def missing(entries) -> dict:
    return {(e.table, e.topic, e.partition): e.missing for e in entries if e.missing}


def test_both_tables_must_have_all_that_kafka_has(objects, settings, topic) -> None:
    produce(settings, topic, {0: 10, 2: 5})
    store(objects, "cutouts", {(topic, 0): range(10), (topic, 2): range(5)})
    store(objects, "detections", {(topic, 0): [*range(3), *range(5, 10)], (topic, 2): range(4)})
    commit(settings, topic, {0: 10, 2: 5})
    entries = audit(objects, settings, Topics((topic,)))
    assert {(each.table, each.partition) for each in entries} == {
        (table, partition) for table in TABLES for partition in range(4)
    }
    assert missing(entries) == {
        ("detections", topic, 0): [(3, 5)],
        ("detections", topic, 2): [(4, 5)],
    }


def test_with_nothing_stored_all_that_was_read_is_missing(objects, settings, topic) -> None:
    produce(settings, topic, {1: 3})
    commit(settings, topic, {1: 3})
    assert missing(audit(objects, settings, Topics((topic,)))) == {
        (table, topic, 1): [(0, 3)] for table in TABLES
    }


def test_watermarks(settings, topic) -> None:
    produce(settings, topic, {3: 2})
    with KafkaTopics(settings) as kafka:
        assert kafka.watermarks([topic]) == {
            (topic, 0): (0, 0),
            (topic, 1): (0, 0),
            (topic, 2): (0, 0),
            (topic, 3): (0, 2),
        }


def test_everything_is_the_given_topics_and_all_others_in_the_store(
    objects, settings, topic
) -> None:
    produce(settings, topic, {0: 1})
    expect(objects, "files-night-1", 2)
    for table in TABLES:
        store(objects, table, {(topic, 0): [0], ("files-night-1", 0): [0, 1], ("old", 0): [5]})
    named = audit(objects, settings, Topics((topic,)))
    assert {each.topic for each in named} == {topic}
    every = audit(objects, settings, Topics((topic,)), everything=True)
    assert {each.topic for each in every} == {topic, "files-night-1", "old"}
    assert not missing(every)


def test_an_unknown_topic_is_named(objects, settings) -> None:
    with pytest.raises(SetupError, match="topic no-such-topic"):
        audit(objects, settings.model_copy(), Topics(("no-such-topic",)))


def test_the_second_site_is_compared_with_the_first_and_kafka(objects, settings, topic) -> None:
    produce(settings, topic, {0: 10})
    second = MemoryObjects()
    for table in TABLES:
        store(objects, table, {(topic, 0): range(9), ("forgotten", 1): range(5, 20)})
        store(second, table, {(topic, 0): [*range(6), 8], ("forgotten", 1): range(10, 18)})
    commit(settings, topic, {0: 10})
    assert missing(audit(objects, settings, Topics((topic,)), True)) == {
        (table, topic, 0): [(9, 10)] for table in TABLES
    }
    entries = audit(objects, settings, Topics((topic,)), True, second)
    assert missing(entries) == {
        (table, *at): spans
        for table in TABLES
        for at, spans in {
            (topic, 0): [(6, 8), (9, 10)],
            ("forgotten", 1): [(5, 10), (18, 20)],
        }.items()
    }


def test_missing_objects_are_counted_by_kind() -> None:
    objects = MemoryObjects()
    for number in range(5):
        objects.put(f"packs/60000/{number}", bytes(10))
    objects.put("deadletters/cutouts/x", b"x")
    assert missing_by_kind(objects.list("")) == [
        MissingObjects("deadletters", 1, 1, ("deadletters/cutouts/x",)),
        MissingObjects("packs", 5, 50, ("packs/60000/0", "packs/60000/1", "packs/60000/2")),
    ]


def test_files_need_no_kafka(objects) -> None:
    nowhere = Settings(kafka="127.0.0.1:1")
    expect(objects, "files-night-1", 3)
    store(objects, "cutouts", {("files-night-1", 0): [0, 2]})
    found = audit(objects, nowhere, Topics(("files-night-1",)))
    assert missing(found) == {
        ("cutouts", "files-night-1", 0): [(1, 2)],
        ("detections", "files-night-1", 0): [(0, 3)],
    }
    assert audit(objects, nowhere, Topics()) == found


@pytest.mark.long
def test_a_kafka_that_is_down_is_one_line(
    objects, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("stampede.runtime.progress.SLOW_SECONDS", 600)
    with pytest.raises(
        SetupError, match=r"Kafka at 127\.0\.0\.1:1 does not answer.*STAMPEDE_KAFKA"
    ):
        audit(objects, Settings(kafka="127.0.0.1:1"), Topics(("alerts",)))
    assert capfd.readouterr().err == ""


def test_a_topic_made_anew_has_none_of_the_offsets_of_the_old_one(objects, settings, topic) -> None:
    """Offsets are no identity: Kafka's topic id tells the two topics apart."""
    produce(settings, topic, {0: 10})
    old = topic_id(settings, topic)
    for table in TABLES:
        store(objects, table, {(f"{topic}@{old}", 0): range(10)})
    assert not missing(audit(objects, settings, Topics((topic,))))
    make_anew(settings, topic)
    produce(settings, topic, {0: 5})
    commit(settings, topic, {0: 5})
    entries = audit(objects, settings, Topics((topic,)))
    new = topic_id(settings, topic)
    assert new != old
    assert missing(entries) == {(table, topic, 0): [(0, 5)] for table in TABLES}
    stored = {(each.topic_id, each.stored) for each in entries if each.partition == 0}
    assert stored == {(new, 0), (old, 10)}
