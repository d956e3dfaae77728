"""Kafka: does it answer, does it have the topics, and does somebody read them?"""

from collections.abc import Iterator

from stampede.config.settings import Settings
from stampede.doctor.finding import Finding, Installation, Level, NotExamined, error, warning
from stampede.errors import NoTopic, SetupError
from stampede.events import ALERT_FUNCTIONS
from stampede.events.kafka.topics import KafkaTopics

PATIENCE = 10.0
SOON = 0.1
"""Of the messages that Kafka keeps: an offset this near to the oldest is lost soon."""


def kafka(installation: Installation) -> Iterator[Finding]:
    """Kafka answers, has the topics, and a partition for each source."""
    settings, topics = installation.settings, _topics(installation.settings)
    if not topics:
        raise NotExamined("STAMPEDE_KAFKA is not set")
    with KafkaTopics(settings, PATIENCE) as reader:
        try:
            partitions, sources = len(reader.watermarks(topics)), settings.source_replicas
            if sources > partitions:
                yield error(
                    f"{sources} sources would share {partitions} partitions of "
                    f"{', '.join(topics)}: {sources - partitions} would take no alert",
                    f"run at most {partitions} sources per function, or add partitions",
                )
        except NoTopic as failure:
            level = Level.ERROR if installation.installed else Level.WARNING  # sources wait for it
            yield Finding(level, failure.message, "make it, or correct STAMPEDE_TOPICS")
        except SetupError as failure:
            yield error(failure.message, "`stampede settings kafka` says how to set it")


def lag(installation: Installation) -> Iterator[Finding]:
    """The consumer groups keep up with Kafka."""
    settings, topics = installation.settings, _topics(installation.settings)
    if not topics:
        raise NotExamined("STAMPEDE_KAFKA is not set")
    with KafkaTopics(settings, PATIENCE) as reader:
        marks, ids = reader.watermarks(topics), reader.topic_ids(topics)
        for function in ALERT_FUNCTIONS:
            group = f"{settings.group}-{function}"
            committed = reader.committed(group, [*marks], ids)
            if marks and not committed:
                yield warning(
                    f"Kafka does not say what the group {group} has read",
                    "let the login describe the group: its ACL needs READ or DESCRIBE",
                )
                continue
            if marks and all(offset is None for offset in committed.values()):
                if any(low < high for low, high in marks.values()):
                    yield warning(
                        f"the group {group} has read nothing of {', '.join(topics)}",
                        f"start the source of {function}; or STAMPEDE_GROUP is another one",
                    )
                continue
            for partition, offset in committed.items():
                yield from _partition_lag(function, group, partition, offset, marks[partition])


def _partition_lag(
    function: str,
    group: str,
    partition: tuple[str, int],
    offset: int | None,
    marks: tuple[int, int],
) -> Iterator[Finding]:
    """Judge how far a group has read a partition.

    `offset` is the next that it reads, None if it has not begun. `marks` are the first offset that
    Kafka keeps and the one after the last.
    """
    topic, number = partition
    low, high = marks
    if offset is None:
        if low < high:
            yield warning(
                f"no source of {function} has begun to read {topic}/{number}, which has "
                f"{high - low:,} messages",
                f"it does within seconds if one of the group {group} is running",
            )
    elif offset < low:
        yield error(
            f"Kafka has deleted {low - offset:,} messages of {topic}/{number} that "
            f"{function} had not read",
            "`stampede audit` names what is missing; keep messages longer "
            "(retention.ms of the topic)",
        )
    elif high - offset > (1 - SOON) * (high - low) > 1000:
        yield warning(
            f"{function} has {high - offset:,} messages of {topic}/{number} to "
            "read, and Kafka deletes the oldest",
            "runbooks/StampedeFallsBehind.md",
        )


def _topics(settings: Settings) -> list[str]:
    return settings.topics.replace(",", " ").split() if settings.kafka else []
