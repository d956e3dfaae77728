"""What `audit` learns from a real Kafka: the store is in memory."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.events.cloudevents.event import Position, coverage_of_positions
from stampede.events.kafka.topics import KafkaTopics
from stampede.handlers.audit.audit import audit
from stampede.store.integrity.ledger import Entry
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import topic_key
from stampede.store.runs.schema import TABLES
from stampede.store.tables.table import Table
from tests.handlers.audit.test_audit import commit, make_anew, produce, store, topic_id
from tests.support.waiting import eventually


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def settings(kafka, topic) -> Settings:
    return Settings(kafka=kafka.bootstrap, group=topic)


def store_both(objects: MemoryObjects, offsets: dict) -> None:
    for table in TABLES:
        store(objects, table, offsets)


def forget(settings: Settings, topic: str, partition: int, below: int) -> None:
    """Let Kafka delete its oldest records, as retention does."""
    admin = AdminClient({"bootstrap.servers": settings.kafka})
    where = TopicPartition(topic, partition, below)
    for done in admin.delete_records([where]).values():
        done.result(30)


def of_partition(entries: list[Entry], number: int = 0, table: str = "cutouts") -> Entry:
    (entry,) = [e for e in entries if e.partition == number and e.table == table]
    return entry


def first_offset(settings: Settings, topic: str) -> int:
    """The offset of the first message; Kafka says that the partition begins at 0."""
    with KafkaTopics(settings) as kafka:
        assert kafka.watermarks([topic])[topic, 0][0] == 0
        first = kafka.message(topic, 0, 0)
    assert first is not None
    return first.offset


def test_what_is_not_yet_due_is_in_flight(objects, settings, topic) -> None:
    produce(settings, topic, {0: 10, 1: 4})
    store_both(objects, {(topic, 0): [0, 1, 2, 4, 6]})
    commit(settings, topic, {0: 5, 1: 0})
    entry = of_partition(entries := audit(objects, settings, Topics((topic,))))
    assert (entry.missing, entry.in_flight) == ([(3, 4)], [(5, 6), (7, 10)])
    assert (entry.received, entry.stored, entry.in_flight_count) == (10, 5, 4)
    assert of_partition(entries, 1).in_flight == [(0, 4)]
    assert not of_partition(entries, 1).faults


def test_what_no_source_has_begun_to_read_is_in_flight(objects, settings, topic) -> None:
    """Partitions that were added, and topics that no source has got yet; also one that is down."""
    produce(settings, topic, {0: 3, 2: 5})
    store_both(objects, {(topic, 0): range(3)})
    entries = audit(objects, settings, Topics((topic,)))
    assert of_partition(entries, 0).missing == of_partition(entries, 2).missing == []
    assert of_partition(entries, 2).in_flight == [(0, 5)]
    assert of_partition(entries, 2, "detections").notes == (
        "partition 2: no source of lightcurves has begun to read it",
    )
    commit(settings, topic, {0: 3})
    entry = of_partition(audit(objects, settings, Topics((topic,))), 2)
    assert (entry.missing, entry.in_flight, entry.faults) == ([], [(0, 5)], ())
    commit(settings, topic, {2: 5})
    entry = of_partition(audit(objects, settings, Topics((topic,))), 2)
    assert (entry.missing, entry.in_flight) == ([(0, 5)], [])
    assert entry.faults == ("nothing of this partition was ever stored",)


def test_groups_of_each_function_count_too(objects, settings, topic) -> None:
    """Those of KafkaSources, and of a source before its first commit in the group of both."""
    produce(settings, topic, {0: 9})
    store_both(objects, {(topic, 0): [0, 1]})
    commit(settings, topic, {0: 4}, group=f"{topic}-cutouts")
    commit(settings, topic, {0: 2}, group=f"{topic}-lightcurves")
    entries = audit(objects, settings, Topics((topic,)))
    entry = of_partition(entries)
    assert (entry.missing, entry.in_flight) == ([(2, 4)], [(4, 9)])
    entry = of_partition(entries, table="detections")
    assert (entry.missing, entry.in_flight) == ([], [(2, 9)])
    commit(settings, topic, {0: 6}, note="detections=3")
    entries = audit(objects, settings, Topics((topic,)))
    assert of_partition(entries).missing == [(2, 6)]
    assert of_partition(entries, table="detections").missing == [(2, 3)]


def test_what_was_stored_by_another_group_is_missing_where_it_has_gaps(
    objects, settings, topic
) -> None:
    """Or by this one, if Kafka has forgotten what it committed."""
    produce(settings, topic, {0: 9})
    store_both(objects, {(topic, 0): [0, 1, 4]})
    entry = of_partition(audit(objects, settings, Topics((topic,))))
    assert (entry.missing, entry.in_flight) == ([(2, 4)], [(5, 9)])


def test_an_offset_that_was_committed_in_an_earlier_topic_says_nothing(
    objects, settings, topic
) -> None:
    produce(settings, topic, {0: 3})
    commit(settings, topic, {0: 3}, note="topicid=kWq0Yv1nQ3uZb8m2rXoXkA")
    entry = of_partition(audit(objects, settings, Topics((topic,))))
    assert (entry.missing, entry.in_flight) == ([], [(0, 3)])
    commit(settings, topic, {0: 3}, note=f"topicid={topic_id(settings, topic)}")
    assert of_partition(audit(objects, settings, Topics((topic,)))).missing == [(0, 3)]


def test_what_was_deleted_with_its_topic_before_it_was_read_is_told(
    objects, settings, topic
) -> None:
    """It is not missing: nobody had read it, and nobody can send it again."""
    old = topic_key(topic, topic_id(settings, topic))
    store(objects, "cutouts", {(old, 0): [0, 1, 3], (old, 1): range(2)})
    store(objects, "detections", {(old, 0): range(9)})
    make_anew(settings, topic)
    entries = [
        e
        for e in audit(objects, settings, Topics((topic,)))
        if topic_key(e.topic, e.topic_id) == old
    ]
    told = {(e.table, e.partition): (e.missing, list(e.deleted)) for e in entries}
    assert told == {
        ("cutouts", 0): ([(2, 3)], [(4, 9)]),
        ("cutouts", 1): ([], []),
        ("detections", 0): ([], []),
        ("detections", 1): ([], [(0, 2)]),
    }
    [entry] = [e for e in entries if (e.table, e.partition) == ("cutouts", 0)]
    assert (
        "partition 0: offsets 4 to 8 were deleted with it before they were stored in cutouts"
        in entry.notes
    )


@pytest.mark.parametrize("with_id", [True, False])
def test_offsets_beyond_kafkas_end_are_told(objects, settings, topic, with_id) -> None:
    """With an id Kafka lost messages; without one, the topic may be another."""
    produce(settings, topic, {0: 5})
    key = topic_key(topic, topic_id(settings, topic) if with_id else None)
    store_both(objects, {(key, 0): range(10)})
    entries = audit(objects, settings, Topics((topic,)))
    told = {e.table: " ".join(e.faults if with_id else e.notes) for e in entries if e.stored}
    assert set(told) == set(TABLES)
    assert all("offsets 5 to 9 are stored, but Kafka's end is 5" in text for text in told.values())
    waiting = {(e.table, tuple(e.in_flight)) for e in entries if e.in_flight}
    assert waiting == (set() if with_id else {(table, ((0, 5),)) for table in TABLES})


def test_offsets_stored_without_an_id_count_for_the_topic(objects, settings, topic) -> None:
    """A store of an older release: its objects have no topic ids."""
    produce(settings, topic, {0: 10})
    store_both(objects, {(topic, 0): range(6)})
    store_both(objects, {(topic_key(topic, topic_id(settings, topic)), 0): range(6, 10)})
    entry = of_partition(audit(objects, settings, Topics((topic,))))
    assert (entry.stored, entry.missing, entry.faults) == (10, [], ())


def test_an_epoch_stands_for_the_id(objects, settings, topic) -> None:
    """For senders that do not know Kafka's id, such as a KafkaSource."""
    produce(settings, topic, {0: 4})
    store_both(objects, {(f"{topic}@2", 0): range(4), (f"{topic}@1", 0): range(900)})
    now = settings.model_copy(update={"topic_epoch": "2"})
    entries = [
        e for e in audit(objects, now, Topics((topic,))) if e.stored and e.table == "cutouts"
    ]
    assert [(e.topic_id, e.stored, e.missing) for e in entries] == [("1", 900, []), ("2", 4, [])]
    assert entries[0].notes
    assert not entries[1].notes


def test_what_kafka_deleted_before_it_was_stored_is_told(objects, settings, topic) -> None:
    produce(settings, topic, {0: 20, 1: 8, 2: 6})
    store_both(objects, {(topic, 0): [*range(5), *range(15, 20)]})
    commit(settings, topic, {1: 2})
    for partition, below in ((0, 12), (1, 8), (2, 6)):
        forget(settings, topic, partition, below)
    entries = audit(objects, settings, Topics((topic,)))
    first = of_partition(entries)
    assert first.missing == [(5, 12), (12, 15)]
    assert first.faults == ("Kafka deleted offsets 5 to 11 before they were stored",)
    # The source stood at offset 2, and Kafka has nothing left.
    second = of_partition(entries, 1)
    assert second.missing == [(2, 8)]
    assert "Kafka deleted offsets 2 to 7 before they were stored" in second.faults
    # No source was ever there.
    assert of_partition(entries, 2).faults == (
        "Kafka deleted offsets 0 to 5 before any was stored",
    )


def test_control_records_are_not_missing(objects, settings, topic) -> None:
    """Each transaction ends with a record that no consumer gets; aborted ones have no messages."""
    producer = Producer({"bootstrap.servers": settings.kafka, "transactional.id": topic})
    producer.init_transactions(60)
    for number, commit_it in enumerate((True, False, True)):
        producer.begin_transaction()
        for _ in range(3 + number):
            producer.produce(topic, b"alert", partition=0)
        assert producer.flush(30) == 0
        (producer.commit_transaction if commit_it else producer.abort_transaction)(60)
    # 0-2 alerts, 3 control; 4-7 aborted, 8 control; 9-13 alerts, 14 control.
    alerts = [0, 1, 2, *range(9, 14)]
    store(objects, "cutouts", {(topic, 0): alerts})
    store(objects, "detections", {(topic, 0): [*alerts[:1], *alerts[2:-1]]})
    commit(settings, topic, {0: 15})
    entries = audit(objects, settings, Topics((topic,)))
    cutouts = of_partition(entries)
    assert (cutouts.missing, cutouts.not_messages, cutouts.received) == ([], 7, 8)
    assert of_partition(entries, 0, "detections").missing == [(1, 2), (13, 14)]
    # The control record at the end is not in flight either.
    commit(settings, topic, {0: 14})
    assert not of_partition(audit(objects, settings, Topics((topic,)))).in_flight


def test_what_compaction_removed_is_not_missing(objects, settings, topic) -> None:
    """A topic that keeps the newest message of each key: its offsets have gaps."""
    compacted = f"{topic}-compacted"
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": "0",
    }
    admin = AdminClient({"bootstrap.servers": settings.kafka})
    admin.create_topics([NewTopic(compacted, 1, config=config)])[compacted].result(30)
    producer = Producer({"bootstrap.servers": settings.kafka})

    def produce_keys(*keys: str) -> None:
        for key in keys:
            producer.produce(compacted, b"alert", key, partition=0)
        assert producer.flush(30) == 0
        time.sleep(0.2)  # so that the next message begins a new segment; the last is never cleaned

    produce_keys("a", "b", "c", "a", "b", "a", "d")  # offsets 2, 4, 5 and 6 stay
    produce_keys("e")
    produce_keys("f")
    deadline = time.monotonic() + 120
    while first_offset(settings, compacted) == 0:
        assert time.monotonic() < deadline, "Kafka does not compact"
        time.sleep(1)
    key = topic_key(compacted, topic_id(settings, compacted))
    store(objects, "cutouts", {(key, 0): [2, 4, 5, 6, 7, 8]})  # read after the compaction
    store(objects, "detections", {(key, 0): [0, 1, 2, 3, 4, 6, 7]})  # read before it
    commit(settings, compacted, {0: 9})
    cutouts, detections = audit(objects, settings, Topics((compacted,)))
    assert (cutouts.missing, cutouts.faults) == ([], ())
    assert (cutouts.received, cutouts.stored, cutouts.not_messages) == (6, 6, 3)
    assert detections.missing == [(5, 6), (8, 9)]
    commit(settings, compacted, {0: 8})
    detections = of_partition(audit(objects, settings, Topics((compacted,))), 0, "detections")
    assert (detections.missing, detections.in_flight) == ([(5, 6)], [(8, 9)])


def test_more_gaps_than_are_looked_at_count_as_missing(
    objects, settings, topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stampede.handlers.audit.kafka_audit.GAP_MESSAGES", 3)
    produce(settings, topic, {0: 50})
    store(objects, "cutouts", {(topic, 0): [0, 40]})
    commit(settings, topic, {0: 50})
    assert of_partition(audit(objects, settings, Topics((topic,)))).missing == [(1, 40), (41, 50)]


def test_messages_are_found_by_offset_in_any_order(settings, topic) -> None:
    produce(settings, topic, {0: 30, 1: 5})
    with KafkaTopics(settings) as kafka:
        found = [kafka.message(topic, *at) for at in [(0, 29), (0, 0), (1, 4), (0, 7), (0, 8)]]
        assert [each and each.offset for each in found] == [29, 0, 4, 7, 8]
        assert kafka.message(topic, 0, 30) is None


def test_offsets_of_an_epoch_count_when_the_source_knows_ids(objects, settings, topic) -> None:
    """After a change from a KafkaSource to a source that asks Kafka, and back."""
    produce(settings, topic, {0: 10})
    present = topic_key(topic, topic_id(settings, topic))
    store_both(objects, {(f"{topic}@7", 0): range(6), (present, 0): range(6, 10)})
    entry = of_partition(audit(objects, settings, Topics((topic,))))
    assert (entry.stored, entry.missing) == (10, [])
    back = MemoryObjects()
    store_both(back, {(present, 0): range(6), (f"{topic}@7", 0): range(6, 10)})
    entry = of_partition(
        audit(back, settings.model_copy(update={"topic_epoch": "7"}), Topics((topic,)))
    )
    assert (entry.topic_id, entry.stored, entry.missing) == ("7", 10, [])


def test_control_records_that_kafka_deleted_are_not_missing_if_the_source_saw_them(
    objects, settings, topic
) -> None:
    produce(settings, topic, {0: 12})
    key = topic_key(topic, topic_id(settings, topic))
    for offsets, skipped in (([0, 1, 4], [0, 0, 2]), ([8, 9, 10, 11], [0, 0, 0, 0])):
        positions = [Position(key, 0, offset) for offset in offsets]
        covered = coverage_of_positions(positions, skipped)
        for table, spec in TABLES.items():
            Table(objects, TABLES[table]).append(spec.schema.empty_table(), covered)
    forget(settings, topic, 0, 8)
    entry = of_partition(audit(objects, settings, Topics((topic,))))
    assert entry.missing == [(5, 8)]
    assert (entry.not_messages, entry.received) == (2, 10)


def test_the_nights_of_a_family_are_found_and_those_that_expired_are_told(
    objects, settings, topic
) -> None:
    """Kafka has deleted one night before `detections` had all of it, and one without trouble."""
    days = [datetime.now(UTC) - timedelta(days) for days in (6, 5, 1)]
    unequal, whole, tonight = names = [f"{topic}-{day:%Y%m%d}" for day in days]
    for name in names:
        produce(settings, name, {0: 6})
    keys = {name: f"{name}@{topic_id(settings, name)}" for name in names}
    store(objects, "cutouts", {(keys[name], 0): range(6) for name in names})
    stored = {unequal: 4, whole: 6, tonight: 5}
    store(objects, "detections", {(keys[name], 0): range(stored[name]) for name in names})
    commit(settings, tonight, {0: 6})
    admin = AdminClient({"bootstrap.servers": settings.kafka})
    for future in admin.delete_topics([unequal, whole]).values():
        future.result(30)
    family = Topics.parse(f"{topic}-{{YYYYMMDD}}")
    eventually(lambda: not family.gone(tonight, known := _names(settings)) and whole not in known)
    every = audit(objects, settings, family)
    entries = {(e.topic, e.table): e for e in every if e.partition == 0}
    assert len(entries) == 6
    assert {place: e.missing for place, e in entries.items() if e.missing} == {
        (tonight, "detections"): [(5, 6)]
    }
    assert {place: list(e.deleted) for place, e in entries.items() if e.deleted} == {
        (unequal, "detections"): [(4, 6)]
    }
    assert "Kafka has deleted this topic" in entries[whole, "cutouts"].notes
    assert not entries[tonight, "cutouts"].notes
    assert audit(objects, settings, Topics.parse(f"{topic}-none-{{n}}")) == []


def _names(settings: Settings) -> frozenset[str]:
    with KafkaTopics(settings) as kafka:
        return kafka.names()


def test_what_expired_before_the_first_stored_night_is_no_fault(objects, settings, topic) -> None:
    """Nobody was there to read it; of a later night that expired unread it is a fault."""
    days = [datetime.now(UTC) - timedelta(days) for days in (6, 5, 4)]
    before, first, after = names = [f"{topic}-{day:%Y%m%d}" for day in days]
    for name in names:
        produce(settings, name, {0: 6})
    for name in (before, after):
        forget(settings, name, 0, 6)
    store_both(objects, {(f"{first}@{topic_id(settings, first)}", 0): range(6)})
    entries = audit(objects, settings, Topics.parse(f"{topic}-{{YYYYMMDD}}"))
    told = {e.topic: (e.faults, e.notes) for e in entries if e.partition == 0}
    sentence = "Kafka deleted offsets 0 to 5 before any was stored"
    assert told[before] == ((), (sentence,))
    assert told[first] == ((), ())
    assert told[after] == ((sentence,), ())
