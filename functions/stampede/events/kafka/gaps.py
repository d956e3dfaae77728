"""Tells apart why an offset is not in the ledger: missing, in flight, or no message at all.

Only Kafka can tell whether a gap is a message, and whether a message was due already.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Self

from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.events import ALERT_FUNCTIONS
from stampede.events.kafka.topics import RESPONSE_SECONDS, KafkaTopics
from stampede.store.integrity.ledger import Account, Entry
from stampede.store.offsets.coverage import Interval, PartitionId, split_topic_key, topic_key
from stampede.store.offsets.intervals import count, joined, named, within

KAFKA_ID = re.compile("[A-Za-z0-9_-]{22}")
GAP_MESSAGES = 5000  # most messages that are read to learn which gaps are messages
FUNCTIONS = {table: function for function, table in ALERT_FUNCTIONS.items()}


class KafkaGaps:
    """The gaps of topics that are in Kafka; a context manager.

    Call in this order: `expected`, then read the ledger, then `judge`. What Kafka receives after
    `expected` is not expected, and what is stored by then must be in Kafka. Methods raise
    `SetupError` if Kafka does not answer or lacks a topic.

    Parameters
    ----------
    topics
        Names and families of topics.
    patience
        Seconds that each response of Kafka may take.
    gap_messages
        Most messages that are read to learn which gaps are messages.

    Attributes
    ----------
    kafka
        Reads the topics.
    topics
        The topics that are asked about, once `expected` has found those of the families.
    keys
        The key of each topic in a coverage, by its name.
    ids
        Kafka's ids of the topics, by name.
    spans
        The offsets ``[low, high)`` that Kafka has, by topic key and partition.
    """

    def __init__(
        self,
        settings: Settings,
        topics: Topics,
        patience: float = RESPONSE_SECONDS,
        gap_messages: int = GAP_MESSAGES,
    ) -> None:
        self._settings = settings
        self._wanted = topics
        self._existing: frozenset[str] = frozenset()
        self.topics: list[str] = []
        self.kafka = KafkaTopics(settings, patience)
        self.keys: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.spans: dict[PartitionId, Interval] = {}
        self._committed: dict[str, Mapping[PartitionId, int | None]] = {}
        self._lookups = gap_messages

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kafka.close()

    def expected(self) -> dict[PartitionId, Interval]:
        """The offsets that Kafka has or had of each partition, by topic key."""
        if self._wanted.families:
            self._existing = self.kafka.names()
        self.topics = sorted(self._wanted.current(self._existing))
        self.ids = self.kafka.topic_ids(self.topics) if self.topics else {}
        epoch = self._settings.topic_epoch
        self.keys = {topic: topic_key(topic, epoch or self.ids.get(topic)) for topic in self.topics}
        watermarks = self.kafka.watermarks(self.topics)
        if not watermarks:
            return {}
        # Read before the store: what a group has committed must be stored by then.
        group = self._settings.group
        self._committed.update(self.kafka.committed(group, list(watermarks), self.ids))
        expected = {}
        for partition, (low, high) in watermarks.items():
            topic, number = partition
            self.spans[self.keys[topic], number] = low, high
            # A table that stood below Kafka's first offset: Kafka has deleted what lies between.
            known = [position.get(partition) for position in self._committed.values()]
            lowest = min((c for c in known if c is not None), default=low)
            expected[self.keys[topic], number] = min(low, lowest), high
        return expected

    def may_be(self, topic: str, key: str) -> bool:
        """Whether offsets under a key may be those of the topic that Kafka has now."""
        name, topic_id = split_topic_key(key)
        if name != topic:
            return False
        if topic_id is None or key == self.keys[topic] or topic_id == self.ids.get(topic):
            return True
        # An epoch, and this source asks Kafka for ids now.
        return not self._settings.topic_epoch and not KAFKA_ID.fullmatch(topic_id)

    def is_earlier(self, entry: Entry) -> bool:
        """Whether an entry is of a topic that is gone.

        Kafka has another one of its name, or of the topic's family only others.
        """
        key = topic_key(entry.topic, entry.topic_id)
        if entry.topic in self.keys:
            return not self.may_be(entry.topic, key)
        return self._wanted.gone(entry.topic, self._existing)

    def judge(self, entry: Entry, account: Account) -> Entry:
        """The entry with what Kafka tells of its offsets; as it is, if it is of no such topic."""
        partition = topic_key(entry.topic, entry.topic_id), entry.partition
        if self.is_earlier(entry):
            return _without_deleted(entry, account)
        if self.keys.get(entry.topic) != partition[0]:
            return entry
        faults: list[str] = []
        notes: list[str] = []
        low, high = self.spans.get(partition, (entry.low, entry.high))
        gaps = entry.missing
        forgotten = within(gaps, 0, low)
        due = self._due(entry, account, low, high)
        missing = self._messages(entry, within(gaps, low, due))
        in_flight = self._waiting(entry, within(gaps, due, high))
        skipped = entry.missing_count - count(forgotten) - count(missing) - count(in_flight)
        if forgotten:
            faults.append(f"Kafka deleted {named(forgotten)} before they were stored")
        if not account.all.intervals(*partition):
            if low and not forgotten:
                early = self._wanted.is_first(entry.topic, _topics(account))
                (notes if early else faults).append(
                    f"Kafka deleted offsets 0 to {low - 1:,} before any was stored"
                )
            if missing:
                faults.append("nothing of this partition was ever stored")
        if in_flight and not self._begun(entry):
            notes.append(
                f"partition {entry.partition}: no source of {FUNCTIONS[entry.table]} has begun to "
                "read it"
            )
        return entry._replace(
            missing=[*forgotten, *missing],
            in_flight=in_flight,
            not_messages=entry.not_messages + skipped,
            faults=tuple(faults),
            notes=tuple(notes),
        )

    def _due(self, entry: Entry, account: Account, low: int, high: int) -> int:
        """The offset below which everything should be stored.

        That is what the group has committed. Stampede's source commits before it delivers anything.
        So without a commit nothing was read, unless something is stored: then another group was
        here, or Kafka forgot what this one had committed.
        """
        committed = self._committed[entry.table]
        if not committed:
            return high  # Kafka does not let us ask
        position = committed.get((entry.topic, entry.partition))
        if position is None:
            key = topic_key(entry.topic, entry.topic_id)
            return max(low, _end(account, key, entry.partition))
        return position

    def _begun(self, entry: Entry) -> bool:
        committed = self._committed[entry.table]
        return committed.get((entry.topic, entry.partition)) is not None

    def _messages(self, entry: Entry, gaps: Sequence[Interval]) -> list[Interval]:
        """The parts of `gaps` that are messages, or that were too many to look at."""
        found: list[Interval] = []
        for low, high in sorted(gaps, key=lambda gap: gap[1] - gap[0]):
            at = low
            while at < high:
                if not self._lookups:
                    found.append((at, high))
                    break
                self._lookups -= 1
                message = self.kafka.message(entry.topic, entry.partition, at)
                if message is None or message.offset >= high:
                    break
                at = message.offset + 1
                found.append((at - 1, at))
        return joined(found)

    def _waiting(self, entry: Entry, gaps: Sequence[Interval]) -> list[Interval]:
        """The gaps, each from its first message; those without any are left out."""
        found = []
        for low, high in gaps:
            message = self.kafka.message(entry.topic, entry.partition, low)
            if message is not None and message.offset < high:
                found.append((message.offset, high))
        return found


def _topics(account: Account) -> set[str]:
    """The names of the topics that a table has anything of."""
    return {split_topic_key(key)[0] for key, _ in account.all.partitions()}


def _end(account: Account, key: str, number: int) -> int:
    """The offset after the last one of a partition that a table accounts for."""
    intervals = account.all.intervals(key, number)
    return intervals[-1][1] if intervals else 0


def _without_deleted(entry: Entry, account: Account) -> Entry:
    """An entry of a topic that is gone: what nobody had read of it was deleted with it.

    What lies before a stored offset was read, so it is missing if it is not stored.
    """
    end = _end(account, topic_key(entry.topic, entry.topic_id), entry.partition)
    deleted = within(entry.missing, end, max(end, entry.high))
    if not deleted:
        return entry
    note = (
        f"partition {entry.partition}: {named(deleted)} were deleted with it before they were "
        f"stored in {entry.table}"
    )
    missing = within(entry.missing, 0, end)
    return entry._replace(missing=missing, deleted=deleted, notes=(*entry.notes, note))
