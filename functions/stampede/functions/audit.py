"""`stampede audit`: proves that nothing is missing, or names what is."""

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
    """The ledger held against what Kafka has of `topics`, and what was ingested from disk.

    A line per table, topic and partition. Kafka is asked about `topics` that were not ingested
    from disk. With `everything`, or no topics at all, whatever else the store knows of is
    listed as well.

    With a `second` site its ledger is what is given; all that the first accounts for is expected
    of it as well, which has the whole history where Kafka has forgotten it.

    Raises
    ------
    SetupError
        Kafka does not answer, or has no such topic.
    """
    known = ledger.expected(objects)
    ingested = {topic for topic, _ in known}
    # Kafka before the store: what comes in after this is not expected of the store yet.
    if in_kafka := [topic for topic in topics if topic not in ingested]:
        known |= watermarks(settings, in_kafka)
    found = ledger.accounts(objects)
    if second is not None:
        known = widened(known, Coverage.union(account.all for account in found.values()))
        found = ledger.accounts(second)
    entries = ledger.entries(found, known)
    return [entry for entry in entries if everything or not topics or entry.topic in topics]


def widened(
    known: dict[ledger.PartitionId, Interval], seen: Coverage
) -> dict[ledger.PartitionId, Interval]:
    """The spans that hold both what is known of each partition and what was seen of it."""
    spans = dict(known)
    for partition in seen.partitions():
        some = seen.intervals(*partition)
        low, high = some[0][0], some[-1][1]
        known_low, known_high = known.get(partition, (low, high))
        spans[partition] = min(low, known_low), max(high, known_high)
    return spans


class Lack(NamedTuple):
    """What the second site does not have yet of one kind of object; `some` are keys."""

    kind: str
    objects: int
    bytes: int
    some: tuple[str, ...]


def lacks(missing: Iterable[ObjectInfo], some: int = 3) -> list[Lack]:
    """Objects by the first part of their keys, in order; held in little memory."""
    found: dict[str, Lack] = {}
    for info in missing:
        kind = info.key.partition("/")[0]
        lack = found.get(kind, Lack(kind, 0, 0, ()))
        found[kind] = Lack(
            kind, lack.objects + 1, lack.bytes + info.size, (*lack.some, info.key)[:some]
        )
    return [lack for _, lack in sorted(found.items())]


def watermarks(settings: Settings, topics: Sequence[str]) -> dict[ledger.PartitionId, Interval]:
    """Offsets ``[low, high)`` that Kafka holds of each partition. Raises `SetupError`."""
    options: dict[str, Any] = {
        "bootstrap.servers": settings.kafka,
        "group.id": "stampede-audit",
        "log_level": 0,  # else librdkafka tells standard error of every refused connection
    }
    consumer = Consumer(options | settings.kafka_options)
    try:
        spans = {}
        for topic in topics:
            found = consumer.list_topics(topic, ANSWER_SECONDS).topics[topic]
            if found.error:
                raise SetupError(f"Kafka at {settings.kafka}, topic {topic}: {found.error.str()}")
            for partition in found.partitions:
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
