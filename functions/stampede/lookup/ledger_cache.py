"""The completeness ledger, read from the store every few seconds at most."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.errors import SetupError
from stampede.lookup.ttl_cache import TtlCache
from stampede.store.integrity.dead_letter_offsets import DeadLetterOffsets
from stampede.store.integrity.ledger import Account, Entry, accounts, expected, quarantined
from stampede.store.integrity.topic_entries import TopicEntries, TopicLedger, in_order
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Interval, PartitionId, split_topic_key
from stampede.store.tables.table import Table
from stampede.telemetry.logs import get_logger

if TYPE_CHECKING:
    from stampede.events.kafka.gaps import KafkaGaps

MAX_AGE = 5.0
"""Seconds: reading the ledger takes a listing of every table and of all dead letters."""


PATIENCE = 3.0
"""Seconds that each response of Kafka may take: a page waits for them."""
GAP_MESSAGES = 500
"""Most messages that are read for a page, to learn which gaps are messages."""
PAUSE = 60.0
"""Seconds until Kafka is asked again after it did not answer."""

log = get_logger()


class LedgerPage(NamedTuple):
    """The ledger as of one reading.

    `damaged` names the objects that cannot be read or verified, and why: what they hold does not
    count. `asked` are the keys of the topics that Kafka was asked about: of these the messages in
    flight are known. `error` says why Kafka was not asked. `topics` are those of the settings.
    `settled` are the keys of the topics of which it is known what is missing: they are asked, gone
    or ingested from files. Of all others it may be in flight.
    """

    accounts: dict[str, Account]
    by_topic: Mapping[str, TopicEntries]
    damaged: Mapping[str, str] = MappingProxyType({})
    asked: frozenset[str] = frozenset()
    error: str | None = None
    topics: Topics = Topics()
    settled: frozenset[str] = frozenset()

    @property
    def entries(self) -> list[Entry]:
        """All entries, table by table."""
        return list(in_order(self.by_topic.values(), self.accounts))


class LedgerCache:
    """Reads the ledger again if the last reading is older than `MAX_AGE`.

    If the settings name topics, Kafka is asked which offsets are in flight, as `audit` does.
    Use it in one thread: a request during a reading waits for that thread, and shares the result.
    """

    def __init__(self, objects: Objects, tables: Mapping[str, Table], settings: Settings) -> None:
        self._objects = objects
        self._settings = settings
        self._topics = Topics.parse(settings.topics)
        self._tables = tables
        self._letters = DeadLetterOffsets(objects)
        self._pages = TtlCache(self._read, MAX_AGE)
        self._ledger = TopicLedger()
        self._silent: str | None = None
        self._silent_until = float("-inf")

    def page(self) -> LedgerPage:
        """What is stored, dead-lettered, missing and in flight. Raises `StoreDown`."""
        return self._pages()

    def _read(self) -> LedgerPage:
        damaged: dict[str, str] = {}
        known = expected(self._objects, damaged)
        ingested = {topic for topic, _ in known}
        topics = self._topics.without(ingested)
        if topics and time.monotonic() >= self._silent_until:
            from stampede.events.kafka.gaps import KafkaGaps  # the client costs time and memory

            try:
                with KafkaGaps(self._settings, topics, PATIENCE, GAP_MESSAGES) as kafka:
                    return self._read_with(kafka, known, damaged)
            except SetupError as error:
                log.warning("the ledger does without Kafka", why=error.message)
                self._silent, self._silent_until = error.message, time.monotonic() + PAUSE
        by_table = self._accounts()
        why = self._silent if topics else None
        return LedgerPage(
            by_table,
            self._ledger.read(by_table, known),
            damaged | quarantined(by_table),
            error=why,
            topics=self._topics,
            settled=frozenset(ingested),
        )

    def _read_with(
        self,
        kafka: KafkaGaps,
        known: dict[PartitionId, Interval],
        damaged: dict[str, str],
    ) -> LedgerPage:
        """The ledger and what Kafka tells of it. Raises `SetupError`, `StoreDown`."""
        spans = kafka.expected()  # before the store: see there
        by_table = self._accounts()
        others: dict[str, list[str]] = {}
        for key in {
            key for account in by_table.values() for key, _ in account.all.partitions()
        } - set(kafka.keys.values()):
            others.setdefault(split_topic_key(key)[0], []).append(key)
        # Offsets under another key may be the same topic's: `audit` finds that out from samples.
        asked = frozenset(
            key
            for topic, key in kafka.keys.items()
            if not any(kafka.may_be(topic, other) for other in others.get(topic, ()))
        )
        spans = {at: span for at, span in spans.items() if at[0] in asked}
        found = self._ledger.read(by_table, known | spans)
        gone = {
            key for key, each in found.items() if each.lacks and kafka.is_earlier(each.entries[0])
        }
        judged = {
            key: topic.map(lambda entry: kafka.judge(entry, by_table[entry.table]))
            if key in asked or key in gone
            else topic
            for key, topic in found.items()
        }
        return LedgerPage(
            by_table,
            judged,
            damaged | quarantined(by_table),
            asked,
            topics=self._topics,
            settled=asked.union(gone, (topic for topic, _ in known)),
        )

    def _accounts(self) -> dict[str, Account]:
        return accounts(self._objects, self._tables, self._letters)
