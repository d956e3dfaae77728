"""The ledger: is anything missing, damaged or a dead letter?"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.doctor.finding import Finding, Installation, error, warning
from stampede.events.kafka.gaps import KAFKA_ID
from stampede.events.kafka.topics import KafkaTopics
from stampede.handlers.audit.audit import audit
from stampede.runtime.counts import are, counted
from stampede.store.integrity import ledger as accounting
from stampede.store.open import open_objects

PATIENCE = 6.0


def ledger(installation: Installation) -> Iterator[Finding]:
    """Each alert that Kafka has had is stored, or still to come."""
    settings = installation.settings
    objects = open_objects(settings)
    topics = Topics.parse(settings.topics) if settings.kafka else Topics()
    accounts = accounting.accounts(objects)
    for table, account in accounts.items():
        for key, why in account.quarantined.items():
            yield error(
                f"{key}, of the table {table}, is damaged: {why}",
                "`stampede audit --deep --repair`; runbooks/StampedeDamaged.md",
            )
    entries = audit(objects, settings, topics, everything=True)
    for entry in entries:
        where = f"{entry.topic}/{entry.partition}"
        if entry.missing_count:
            yield error(
                f"{counted(entry.missing_count, 'alert')} of {where} {are(entry.missing_count)} "
                f"missing in {entry.table}",
                f"`stampede audit {entry.topic}` lists them; `stampede replay --help`",
            )
        if lost := sum(high - low for low, high in entry.deleted):
            yield warning(
                f"Kafka deleted {counted(lost, 'alert')} of {where} before they were stored in "
                f"{entry.table}",
                "let Kafka keep topics longer; runbooks/StampedeFallsBehind.md",
            )
        for fault in entry.faults:
            yield error(f"{where}: {fault}", f"`stampede audit {entry.topic}`")
    if topics and not settings.topic_epoch:
        yield from _moved(settings, topics, entries)
    if letters := accounting.count_refused(accounts):
        what = "alert is a dead letter" if letters == 1 else "alerts are dead letters"
        yield warning(
            f"{letters:,} {what}",
            "`stampede deadletters list` says why; `stampede deadletters replay --help`, or "
            "`stampede deadletters accept --help` if they are rightly refused",
        )


def _moved(
    settings: Settings, topics: Topics, entries: Sequence[accounting.Entry]
) -> Iterator[Finding]:
    """Topics that had another id when they were stored before, while they are new in Kafka.

    Once Kafka has deleted the first message of such a topic, the change is long ago.
    """
    stored: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        if entry.topic_id and KAFKA_ID.fullmatch(entry.topic_id) and entry.stored:
            stored[entry.topic].add(entry.topic_id)
    with KafkaTopics(settings, PATIENCE) as reader:
        existing = reader.names()
        current = sorted(topics.current(existing) & existing & stored.keys())
        ids, marks = reader.topic_ids(current), reader.watermarks(current)
    for topic in current:
        new = not any(low for (name, _), (low, _) in marks.items() if name == topic)
        if topic in ids and new and (before := stored[topic] - {ids[topic]}):
            yield warning(
                f"topic {topic} has another id than the one stored before "
                f"({', '.join(sorted(before))}): Kafka was moved or the topic made anew",
                "docs/how-to/topic-made-anew.md says what to look at",
            )
