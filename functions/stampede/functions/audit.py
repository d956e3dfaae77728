"""`stampede audit`: proves that nothing is missing, or names what is missing."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from stampede.errors import SetupError
from stampede.settings import Settings
from stampede.store import ledger
from stampede.store.coverage import Coverage, Interval
from stampede.store.objects import ObjectInfo, Objects

ANSWER_SECONDS = 15.0


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
    if in_kafka := [topic for topic in topics if topic not in ingested]:
        expected |= watermarks(settings, in_kafka)
    accounts = ledger.accounts(objects)
    if second is not None:
        expected = widened(expected, Coverage.union(account.all for account in accounts.values()))
        accounts = ledger.accounts(second)
    entries = ledger.entries(accounts, expected)
    return [entry for entry in entries if everything or not topics or entry.topic in topics]


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


def watermarks(settings: Settings, topics: Sequence[str]) -> dict[ledger.PartitionId, Interval]:
    """The offsets ``[low, high)`` that Kafka holds of each partition. Raises `SetupError`."""
    options: dict[str, Any] = {
        "bootstrap.servers": settings.kafka,
        "group.id": "stampede-audit",
        "log_level": 0,  # otherwise librdkafka prints every refused connection on standard error
    }
    consumer = Consumer(options | settings.kafka_options)
    try:
        spans = {}
        for topic in topics:
            metadata = consumer.list_topics(topic, ANSWER_SECONDS).topics[topic]
            if error := metadata.error:
                raise SetupError(f"Kafka at {settings.kafka}, topic {topic}: {error.str()}")
            for partition in metadata.partitions:
                spans[topic, partition] = consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), ANSWER_SECONDS
                )
        return spans
    except KafkaException as error:
        raise SetupError(
            f"Kafka at {settings.kafka} does not answer: {error.args[0].str()}; "
            "set STAMPEDE_KAFKA, or leave the topics out to see what the store knows"
        ) from None
    finally:
        consumer.close()
