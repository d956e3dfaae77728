"""The options of the source's Kafka client."""

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from stampede.config.settings import Settings
from stampede.events.kafka.source_health import STATISTICS_SECONDS
from stampede.telemetry.kafka_log import KAFKA_LOG

DEFAULTS = {
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "cooperative-sticky",
    # How much is fetched ahead, and how long the client waits once so much is queued. Its default
    # wait of a second cut 4,000 events/s to 400 with alerts of 87 KB.
    "queued.max.messages.kbytes": "16384",
    "fetch.queue.backoff.ms": "20",
    # An answer ends within a batch, which Kafka sends again: 15 % of the bytes of LSST alerts with
    # 4 MB here, 2 % with 16 (`stampede bench fetch`). It saves Kafka's CPU too (ADR 30). The answer
    # of a broker stays within 50 MB, by the default of fetch.max.bytes.
    "max.partition.fetch.bytes": "16777216",
    # A partition that is added, or a topic that is made later, is read at most so much later and a
    # rebalance. The default is 5 minutes.
    "topic.metadata.refresh.interval.ms": "3000",
}


def is_cooperative(settings: Settings) -> bool:
    """Whether partitions are assigned one by one, without giving up the others."""
    name = "partition.assignment.strategy"
    return settings.kafka_options.get(name, DEFAULTS[name]) == DEFAULTS[name]


def consumer_options(
    settings: Settings,
    login: Mapping[str, str],
    on_commit: Callable[[KafkaError | None, list[TopicPartition]], None],
    on_statistics: Callable[[str], None],
) -> dict[str, Any]:
    """Options of a `confluent_kafka.Consumer`; those of its `KafkaLogin` replace the defaults.

    Nothing replaces the last six: the consumer alone commits, and only what is delivered; the ends
    of partitions are part of that; the source's health comes from the statistics; librdkafka's
    messages go into the log.
    """
    own = settings.group_instance_id
    return {
        **DEFAULTS,
        "bootstrap.servers": settings.kafka,
        "group.id": settings.group,
        "client.id": settings.source_name,
        **({"group.instance.id": own} if own else {}),
        **login,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "on_commit": on_commit,
        "statistics.interval.ms": round(STATISTICS_SECONDS * 1000),
        "stats_cb": on_statistics,
        "logger": KAFKA_LOG,
    }


def reader_options(settings: Settings, login: Mapping[str, str]) -> dict[str, Any]:
    """Options of a client beside the source's consumer, of the same group without being a member.

    It is assigned partitions, or asks what is committed; it commits nothing.
    """
    return {
        **DEFAULTS,
        "bootstrap.servers": settings.kafka,
        "group.id": settings.group,
        "client.id": f"{settings.source_name}-catch-up",
        **login,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        # What Kafka has deleted is passed over; nothing that it has.
        "auto.offset.reset": "earliest",
        "logger": KAFKA_LOG,
    }
