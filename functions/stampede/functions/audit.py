"""`stampede audit`: proves that nothing is missing, or names what is missing."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stampede.functions.kafka_topics import KafkaTopics
from stampede.settings import Settings
from stampede.store import ledger
from stampede.store.coverage import Coverage, Interval, topic_key
from stampede.store.objects import ObjectInfo, Objects


def audit(
    objects: Objects,
    settings: Settings,
    topics: Sequence[str],
    everything: bool = False,
    second: Objects | None = None,
) -> list[ledger.Entry]:
    """Compare the ledger with what Kafka has of `topics`, and with what was ingested from disk.

    Returns one entry per table, topic and partition. Kafka's watermarks are read for the `topics`
    that were not ingested from disk. With `everything`, or without topics, the entries of all
    other topics that the store knows are returned too.

    With a `second` site the entries are those of its ledger. It must then also have all that the
    first site accounts for, because Kafka may have deleted its old records.

    Raises
    ------
    SetupError
        Kafka does not answer, or lacks a topic.
    """
    expected = ledger.expected(objects)
    ingested = {topic for topic, _ in expected}
    # Kafka before the store: the store need not have what Kafka receives after this.
    topic_keys: dict[str, str] = {}
    if in_kafka := [topic for topic in topics if topic not in ingested]:
        with KafkaTopics(settings) as kafka:
            topic_keys = {
                topic: topic_key(topic, topic_id)
                for topic, topic_id in kafka.topic_ids(in_kafka).items()
            }
            expected |= {
                (topic_keys.get(topic, topic), partition): span
                for (topic, partition), span in kafka.watermarks(in_kafka).items()
            }
    accounts = _with_ids(ledger.accounts(objects), topic_keys)
    if second is not None:
        expected = widened(expected, Coverage.union(account.all for account in accounts.values()))
        accounts = _with_ids(ledger.accounts(second), topic_keys)
    entries = ledger.entries(accounts, expected)
    return [entry for entry in entries if everything or not topics or entry.topic in topics]


def _with_ids(
    accounts: dict[str, ledger.Account], topic_keys: dict[str, str]
) -> dict[str, ledger.Account]:
    """The accounts; offsets stored without a topic's id count for the topic that Kafka has now."""
    return {table: account.renamed(topic_keys) for table, account in accounts.items()}


def widened(
    expected: dict[ledger.PartitionId, Interval], seen: Coverage
) -> dict[ledger.PartitionId, Interval]:
    """The expected spans, each widened so that it holds what was seen of its partition."""
    spans = dict(expected)
    for partition in seen.partitions():
        intervals = seen.intervals(*partition)
        low, high = intervals[0][0], intervals[-1][1]
        expected_low, expected_high = expected.get(partition, (low, high))
        spans[partition] = min(low, expected_low), max(high, expected_high)
    return spans


class MissingObjects(NamedTuple):
    """The objects of one kind that the second site lacks; `examples` are keys of a few."""

    kind: str
    objects: int
    bytes: int
    examples: tuple[str, ...]


def missing_by_kind(missing: Iterable[ObjectInfo], examples: int = 3) -> list[MissingObjects]:
    """Count objects by the first part of their keys, sorted, in constant memory."""
    by_kind: dict[str, MissingObjects] = {}
    for info in missing:
        kind = info.key.partition("/")[0]
        _, objects, size, keys = by_kind.get(kind, MissingObjects(kind, 0, 0, ()))
        by_kind[kind] = MissingObjects(
            kind, objects + 1, size + info.size, (*keys, info.key)[:examples]
        )
    return [by_kind[kind] for kind in sorted(by_kind)]
