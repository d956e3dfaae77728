"""The ledger by topic is the ledger, and is made again only where offsets have changed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stampede.store.integrity.ledger import Account, Entry, entries
from stampede.store.integrity.topic_entries import Sums, TopicLedger, entries_by_topic, in_order
from stampede.store.offsets.coverage import Coverage

places = st.tuples(st.sampled_from(["a@1", "a@2", "b", "c@9"]), st.integers(0, 2))
coverages = st.dictionaries(places, st.lists(st.integers(0, 12), max_size=6), max_size=6)
ranges = st.dictionaries(places, st.tuples(st.integers(0, 6), st.integers(6, 14)), max_size=3)


def account(stored: dict, dead: dict, others: dict, refused: dict) -> Account:
    """Dead letters are accepted, except those of `refused`."""
    letters = Coverage.of(dead)
    accepted = letters - Coverage.of(refused)
    return Account(Coverage.of(stored), letters, {}, Coverage.of(others), accepted)


accounts = st.fixed_dictionaries(
    {
        name: st.builds(account, coverages, coverages, coverages, coverages)
        for name in ("cutouts", "detections")
    }
)


@given(accounts, ranges)
def test_it_is_the_ledger(by_table: dict[str, Account], known: dict) -> None:
    topics = entries_by_topic(by_table, known)
    assert list(in_order(topics.values(), by_table)) == entries(by_table, known)
    assert list(topics) == sorted(topics)
    for key, topic in topics.items():
        assert {topic.topic, topic.topic_id or topic.topic} <= {*key.split("@")}
        for table, sums in topic.by_table.items():
            of_table = [entry for entry in topic.entries if entry.table == table]
            names = ("received", "stored", "dead_lettered", "accepted")
            names += ("missing_count", "in_flight_count")
            counts = [sum(getattr(entry, name) for entry in of_table) for name in names]
            assert sums == Sums(len(of_table), *counts)
        most: dict[int, int] = {}
        for entry in topic.entries:
            most[entry.partition] = max(entry.received, most.get(entry.partition, entry.received))
        assert topic.received == sum(most.values())


@given(accounts, accounts, ranges)
def test_what_was_before_changes_nothing(
    before: dict[str, Account], by_table: dict[str, Account], known: dict
) -> None:
    earlier = entries_by_topic(before, known)
    topics = entries_by_topic(by_table, known, earlier)
    assert list(in_order(topics.values(), by_table)) == entries(by_table, known)


@given(st.lists(st.tuples(accounts, ranges), min_size=2, max_size=3))
def test_each_reading_is_right(readings: list) -> None:
    ledger = TopicLedger()
    for by_table, known in [*readings, readings[-1]]:
        topics = ledger.read(by_table, known)
        assert list(in_order(topics.values(), by_table)) == entries(by_table, known)
    assert ledger.read(by_table, known) is topics


def of_nights(count: int) -> Coverage:
    spans = {(f"ztf_{n:04}@x", p): np.array([[0, 9 + n]]) for n in range(count) for p in range(4)}
    return Coverage(spans)


def test_a_topic_whose_offsets_are_the_same_is_taken_over() -> None:
    held = of_nights(9)
    first = entries_by_topic({"cutouts": Account(held, Coverage())})
    more = held | Coverage.of({("ztf_0003@x", 1): [50], ("ztf_0009@x", 0): [0]})
    second = entries_by_topic({"cutouts": Account(more, Coverage())}, {}, first)
    changed = {key for key, topic in second.items() if topic is not first.get(key)}
    assert changed == {"ztf_0003@x", "ztf_0009@x"}
    asked = entries_by_topic({"cutouts": Account(more, Coverage())}, {("b", 0): (0, 3)}, second)
    assert {key for key, topic in asked.items() if topic is not second.get(key)} == {"b"}
    assert asked["b"].lacks


def test_equal_offsets_of_another_merge_are_the_same() -> None:
    first = entries_by_topic({"cutouts": Account(of_nights(9), Coverage())})
    second = entries_by_topic({"cutouts": Account(of_nights(9), Coverage())}, {}, first)
    assert all(topic is first[key] for key, topic in second.items())


def test_entries_that_stay_the_same_stay_the_same_object() -> None:
    [topic] = entries_by_topic({"cutouts": Account(of_nights(1), Coverage())}).values()
    assert topic.map(lambda entry: entry) is topic
    other = topic.map(lambda entry: entry._replace(faults=("bad",)))
    assert other is not topic
    assert other.lacks
    assert isinstance(other.entries[0], Entry)
