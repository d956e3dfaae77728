"""How much of Kafka a source has not delivered, and what changed its id, by family.

A topic a night makes no new series.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from confluent_kafka import Consumer, TopicPartition

from stampede.config.topics import Topics
from stampede.events.delivery.in_flight import AssignedPartition, PartitionKey
from stampede.events.kafka.source_health import SourceHealth
from stampede.telemetry import source_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()


class SourceLag:
    """The lag of the partitions that are assigned to a source.

    Parameters
    ----------
    topics
        Those of the source.
    health
        Knows offsets before the first delivery.
    """

    def __init__(self, topics: Topics, health: SourceHealth) -> None:
        self._topics, self._health = topics, health
        self._labels: set[tuple[str, str]] = set()
        self._ids: dict[str, str] = {}

    def of(self, consumer: Consumer, key: PartitionKey, partition: AssignedPartition) -> int | None:
        """How many offsets the outlet lacks that lacks most; None if that is not known."""
        _, high = consumer.get_watermark_offsets(TopicPartition(*key), cached=True)
        position = partition.least
        if position is None and key in self._health.waiting:
            position, high = self._health.waiting[key]
        return max(0, high - position) if high >= 0 and position is not None else None

    def show(
        self, consumer: Consumer, partitions: Mapping[PartitionKey, AssignedPartition]
    ) -> None:
        """Set the metric to the lag of these partitions, and forget that of others."""
        lags: Counter[tuple[str, str]] = Counter()
        for key, partition in list(partitions.items()):
            lag = self.of(consumer, key, partition)
            if lag is not None:
                lags[self._topics.family_of(key[0]), str(key[1])] += lag
        for labels, lag in lags.items():
            source_metrics.SOURCE_LAG.labels(*labels).set(lag)
        for labels in self._labels - lags.keys():
            with suppress(KeyError):
                source_metrics.SOURCE_LAG.remove(*labels)
        self._labels = set(lags)
        self._count_other_ids(partitions)

    def _count_other_ids(self, partitions: Mapping[PartitionKey, AssignedPartition]) -> None:
        """Count the topics that had another id when they were seen before in this process."""
        ids = {key[0]: each.topic_id for key, each in list(partitions.items()) if each.topic_id}
        for topic, topic_id in ids.items():
            count = source_metrics.SOURCE_TOPICS_MADE_ANEW.labels(self._topics.family_of(topic))
            before = self._ids.get(topic, topic_id)
            if topic_id != before:
                log.warning("topic has another id", topic=topic, before=before, now=topic_id)
                count.inc()
        self._ids |= ids
