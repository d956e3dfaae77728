"""Kafka: does it answer, does it have the topics, and does somebody read them?"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.doctor.finding import Finding, Installation, Level, NotExamined, error, warning
from stampede.errors import NoTopic, SetupError
from stampede.events.kafka.topics import KafkaTopics
from stampede.runtime.counts import are, counted
from stampede.store.offsets.coverage import Interval, PartitionId

PATIENCE = 6.0
MOST_PAST = 30
"""Topics that are looked at because they have left their family's window, the newest."""
HELD_SECONDS, STEP_SECONDS = 20.0, 1.0
"""Time in which a message that waits is delivered, also by a function that starts from zero."""
SOON = 0.1
"""Of the messages that Kafka keeps: an offset this near to the oldest is lost soon."""


def kafka(installation: Installation) -> Iterator[Finding]:
    """Kafka answers, has the topics, and a partition for each source."""
    settings, topics = installation.settings, _topics(installation.settings)
    if not topics:
        raise NotExamined("STAMPEDE_KAFKA is not set")
    with KafkaTopics(settings, PATIENCE) as reader:
        try:
            marks, sources = reader.watermarks(_current(reader, topics)), settings.source_replicas
            partitions = _most_partitions(topics, marks)
            if not marks:
                yield warning(
                    f"Kafka has no topic of {topics} now",
                    "nothing, if none was made yet; or correct STAMPEDE_TOPICS",
                )
            elif sources > partitions:
                yield error(
                    f"{counted(sources, 'source')} would share "
                    f"{counted(partitions, 'partition')} of {topics}: "
                    f"{sources - partitions} would take no alert",
                    f"run at most {partitions} sources, or add partitions",
                )
        except NoTopic as failure:
            level = Level.ERROR if installation.installed else Level.WARNING  # sources wait for it
            yield Finding(level, failure.message, "make it, or correct STAMPEDE_TOPICS")
        except SetupError as failure:
            log = installation.logs.get("kafka")  # of the Kafka of `stampede up`
            look = f"look at its log, {log}; or " if log else ""
            yield error(
                failure.message, f"{look}correct the settings: `stampede settings` lists them"
            )


def unread(installation: Installation) -> Iterator[Finding]:
    """No topic that is like those that are read is without a reader."""
    topics = _topics(installation.settings)
    topics = topics.beside(Topics.parse(installation.settings.other_topics))
    if not topics:
        raise NotExamined("STAMPEDE_KAFKA is not set")
    with KafkaTopics(installation.settings, PATIENCE) as reader:
        existing = reader.names()
        for topic, family in sorted(topics.unread(existing).items()):
            yield warning(
                f"nobody reads the topic {topic}, which is like {topics}",
                f"add {family} to STAMPEDE_TOPICS, or !{family} if it is not wanted",
            )
        for family, other in sorted(topics.silent(existing).items()):
            yield warning(
                f"{family} has had no topic for some nights, and there is {other}",
                "runbooks/StampedeTopicSilent.md",
            )
        past = [each for each in existing if topics.holds(each)]
        past = topics.in_order(set(past) - topics.current(existing))[-MOST_PAST:]
        marks, ids = reader.watermarks(past), reader.topic_ids(past)
        group = installation.settings.group
        found = reader.committed(group, [*marks], ids) if past else {}
        for table, committed in found.items():
            for topic, left in _left(past, marks, committed):
                yield error(
                    f"{topic} is no more read, and {table} has {left:,} of its messages still "
                    "to read",
                    f"name it in STAMPEDE_TOPICS: {installation.settings.topics},{topic}",
                )


def _left(
    past: Sequence[str],
    marks: Mapping[PartitionId, Interval],
    committed: Mapping[PartitionId, int | None],
) -> Iterator[tuple[str, int]]:
    """Topics with messages that a group has not read, of the first one on that it has begun.

    What was there before the installation had its first topic was never to be read.
    """
    begun = False
    for topic in past:
        own = [partition for partition in marks if partition[0] == topic]
        begun = begun or any(committed.get(each) is not None for each in own)
        left = sum(marks[each][1] - max(marks[each][0], committed.get(each) or 0) for each in own)
        if begun and left > 0:
            yield topic, left


def lag(installation: Installation) -> Iterator[Finding]:
    """The consumer group keeps up with Kafka, for both tables."""
    settings, topics = installation.settings, _topics(installation.settings)
    if not topics:
        raise NotExamined("STAMPEDE_KAFKA is not set")
    with KafkaTopics(settings, PATIENCE) as reader:
        current = _current(reader, topics)
        marks, ids = reader.watermarks(current), reader.topic_ids(current)
        group = settings.group
        if marks and not reader.commits(group, [*marks], ids):
            yield warning(
                f"Kafka does not say what the group {group} has read",
                "let the login read the group: its ACL needs READ",
            )
            return
        for table, committed in reader.committed(group, [*marks], ids).items():
            if marks and all(offset is None for offset in committed.values()):
                if any(low < high for low, high in marks.values()):
                    yield warning(
                        f"the group {group} has read nothing of {topics} for {table}",
                        "start its source; or STAMPEDE_GROUP is another one",
                    )
                continue
            for partition, offset in committed.items():
                yield from _partition_lag(table, group, partition, offset, marks[partition])
        yield from _held(reader, group, marks, ids)


def _held(
    reader: KafkaTopics,
    group: str,
    marks: Mapping[PartitionId, Interval],
    ids: Mapping[str, str],
) -> Iterator[Finding]:
    """Tables for which messages wait, and none is delivered: functions or the store refuse them.

    A message counts as delivered once it is committed, and a source commits each second.
    """
    held = _waiting(reader, group, marks, ids)
    deadline = time.monotonic() + HELD_SECONDS
    while held and time.monotonic() < deadline:
        time.sleep(STEP_SECONDS)
        now = _waiting(reader, group, marks, ids)
        held = {table: count for table, count in held.items() if now.get(table) == count}
    for table, count in held.items():
        yield warning(
            f"{counted(count, 'message')} {are(count)} not delivered for {table}, and none of "
            f"them was within {HELD_SECONDS:.0f} s",
            "look at the logs of its source and its function: runbooks/StampedeFallsBehind.md",
        )


def _waiting(
    reader: KafkaTopics,
    group: str,
    marks: Mapping[PartitionId, Interval],
    ids: Mapping[str, str],
) -> dict[str, int]:
    """How many of the messages before `marks` tables lack, of the partitions that are read."""
    found = {}
    for table, committed in reader.committed(group, [*marks], ids).items():
        lag = sum(
            max(0, marks[partition][1] - max(offset, marks[partition][0]))
            for partition, offset in committed.items()
            if offset is not None
        )
        if lag:
            found[table] = lag
    return found


def _partition_lag(
    table: str,
    group: str,
    partition: tuple[str, int],
    offset: int | None,
    marks: tuple[int, int],
) -> Iterator[Finding]:
    """Judge how far a partition was delivered for a table.

    `offset` is the next that it lacks, None if it has not begun. `marks` are the first offset that
    Kafka keeps and the one after the last.
    """
    topic, number = partition
    low, high = marks
    if offset is None:
        if low < high:
            yield warning(
                f"no source has begun to read {topic}/{number} for {table}, which has "
                f"{counted(high - low, 'message')}",
                f"it does within seconds if one of the group {group} is running",
            )
    elif offset < low:
        yield error(
            f"Kafka has deleted {counted(low - offset, 'message')} of {topic}/{number} that "
            f"{table} had not got",
            "`stampede audit` names what is missing; keep messages longer "
            "(retention.ms of the topic)",
        )
    elif high - offset > (1 - SOON) * (high - low) > 1000:
        yield warning(
            f"{table} lacks {counted(high - offset, 'message')} of {topic}/{number}, and "
            "Kafka deletes the oldest",
            "runbooks/StampedeFallsBehind.md",
        )


def _topics(settings: Settings) -> Topics:
    return Topics.parse(settings.topics) if settings.kafka else Topics()


def _current(reader: KafkaTopics, topics: Topics) -> list[str]:
    """The topics to read: those of families are found in Kafka."""
    return sorted(topics.current(reader.names() if topics.families else ()))


def _most_partitions(topics: Topics, partitions: Iterable[PartitionId]) -> int:
    """The partitions that sources can share: of a family those of one topic, as they alternate."""
    by_topic = Counter(topic for topic, _ in partitions)
    most: Counter[str] = Counter()
    for topic, number in by_topic.items():
        family = topics.family_of(topic)
        most[family] = max(most[family], number)
    return most.total()
