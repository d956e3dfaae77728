"""The ledger: is anything missing, damaged or a dead letter?"""

from collections.abc import Iterator

from stampede.config.topics import Topics
from stampede.doctor.finding import Finding, Installation, error, warning
from stampede.handlers.audit.audit import audit
from stampede.store.integrity import ledger as accounting
from stampede.store.open import open_objects


def ledger(installation: Installation) -> Iterator[Finding]:
    """Each alert that Kafka has had is stored, or still to come."""
    settings = installation.settings
    objects = open_objects(settings)
    topics = Topics.parse(settings.topics) if settings.kafka else Topics()
    for table, account in accounting.accounts(objects).items():
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
                f"{entry.missing_count:,} alerts of {where} are missing in {entry.table}",
                f"`stampede audit {entry.topic}` lists them; `stampede replay --help`",
            )
        if lost := sum(high - low for low, high in entry.deleted):
            yield warning(
                f"Kafka deleted {lost:,} alerts of {where} before they were stored in "
                f"{entry.table}",
                "let Kafka keep topics longer; runbooks/StampedeFallsBehind.md",
            )
        for fault in entry.faults:
            yield error(f"{where}: {fault}", f"`stampede audit {entry.topic}`")
    if letters := sum(entry.dead_lettered for entry in entries):
        yield warning(f"{letters:,} dead letters", "`stampede deadletters list` says why")
