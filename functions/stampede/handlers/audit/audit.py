"""`stampede audit`: proves that nothing is missing, or names what is missing."""

from collections.abc import Iterable
from typing import NamedTuple

from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.deadletters.stored import AlertCheck
from stampede.handlers.audit.kafka_audit import KafkaAudit
from stampede.store.integrity import ledger
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.offsets.coverage import Coverage, Interval, PartitionId


def audit(
    objects: Objects,
    settings: Settings,
    topics: Topics,
    everything: bool = False,
    second: Objects | None = None,
    check: AlertCheck | None = None,
) -> list[ledger.Entry]:
    """Compare the ledger with what Kafka has of `topics`, and with what was ingested from disk.

    Returns one entry per table, topic and partition. Kafka is asked about the `topics` that were
    not ingested from disk. With `everything`, or without topics, the entries of all other topics
    that the store knows are returned too.

    With a `second` site the entries are those of its ledger. It must then also have all that the
    first site accounts for, because Kafka may have deleted its old records. `check` says whether
    alerts are in the site that is audited; samples of the topics are compared with it.

    Raises
    ------
    SetupError
        Kafka does not answer, or lacks a topic.
    """
    expected = ledger.expected(objects)
    ingested = {topic for topic, _ in expected}
    with KafkaAudit(settings, topics.without(ingested), check) as kafka:
        # Kafka before the store: the store need not have what Kafka receives after this.
        expected |= kafka.expected()
        accounts = audited = ledger.accounts(objects)
        if second is not None:
            audited = ledger.accounts(second)
        seen = Coverage.union(account.all for account in accounts.values())
        kafka.settle(audited, objects if second is None else second, seen)
        if second is not None:
            expected = widened(expected, seen.renamed(kafka.same))
        audited = kafka.renamed(audited)
        entries = [
            kafka.judge(entry, audited[entry.table]) for entry in ledger.entries(audited, expected)
        ]
    return [entry for entry in entries if everything or not topics or topics.holds(entry.topic)]


def widened(expected: dict[PartitionId, Interval], seen: Coverage) -> dict[PartitionId, Interval]:
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
