"""Compares the ledger with Kafka itself, message by message where offsets alone prove nothing.

An offset in the ledger says that *an* alert was stored under it. Whether it is the alert that Kafka
has there now, whether a gap is a message at all, and whether a message was due already, only Kafka
can tell.
"""

import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from stampede.deadletters.stored import AlertCheck
from stampede.events.record import Record
from stampede.functions import ALERT_FUNCTIONS
from stampede.functions.intervals import count, joined, named, within
from stampede.functions.kafka_samples import ANEW, LEAST, SAMPLES, chosen, differing
from stampede.functions.kafka_topics import KafkaTopics
from stampede.settings import Settings
from stampede.store.coverage import Coverage, Interval, PartitionId, split_topic_key, topic_key
from stampede.store.ledger import Account, Entry
from stampede.store.objects import Objects

KAFKA_ID = re.compile("[A-Za-z0-9_-]{22}")
GAP_MESSAGES = 5000  # most messages that are read to learn which gaps are messages
FUNCTIONS = {table: function for function, table in ALERT_FUNCTIONS.items()}


class KafkaAudit:
    """The audit of topics that are in Kafka; a context manager.

    Call in this order: `expected`, then read the ledger, then `settle`, then `judge`. What Kafka
    receives after `expected` is not expected, and what is stored by `settle` must be in Kafka.
    Methods raise `SetupError` if Kafka does not answer or lacks a topic.

    Parameters
    ----------
    topics
        Names of topics.
    check
        Says whether alerts are in the audited store; None to compare offsets only.
    """

    def __init__(
        self, settings: Settings, topics: Sequence[str], check: AlertCheck | None = None
    ) -> None:
        self._settings = settings
        self._topics = list(dict.fromkeys(topics))
        self._check = check
        self._kafka = KafkaTopics(settings)
        self._keys: dict[str, str] = {}
        self._spans: dict[PartitionId, Interval] = {}
        self._committed: dict[str, Mapping[PartitionId, int | None]] = {}
        self.same: dict[str, str] = {}  # other keys of a present topic, and its key
        self._ids: dict[str, str] = {}
        self._faults: dict[tuple[str, PartitionId], list[str]] = defaultdict(list)
        self._lookups = GAP_MESSAGES

    def __enter__(self) -> "KafkaAudit":
        return self

    def __exit__(self, *_: object) -> None:
        self._kafka.close()

    def expected(self) -> dict[PartitionId, Interval]:
        """The offsets that Kafka has or had of each partition, by topic key."""
        self._ids = self._kafka.topic_ids(self._topics)
        epoch = self._settings.topic_epoch
        self._keys = {
            topic: topic_key(topic, epoch or self._ids.get(topic)) for topic in self._topics
        }
        watermarks = self._kafka.watermarks(self._topics)
        if not watermarks:
            return {}
        # Read before the store: what a group has committed must be stored by then.
        for table, function in FUNCTIONS.items():
            group = f"{self._settings.group}-{function}"
            self._committed[table] = self._kafka.committed(group, list(watermarks))
        expected = {}
        for partition, (low, high) in watermarks.items():
            topic, number = partition
            self._spans[self._keys[topic], number] = low, high
            # A group that stood below Kafka's first offset: Kafka has deleted what lies between.
            known = [position[partition] for position in self._committed.values()]
            lowest = min((c for c in known if c is not None), default=low)
            expected[self._keys[topic], number] = min(low, lowest), high
        return expected

    def settle(
        self, accounts: Mapping[str, Account], objects: Objects, seen: Coverage | None = None
    ) -> None:
        """Find out whether offsets in these accounts are those of the alerts that Kafka has now.

        Parameters
        ----------
        objects
            The store that the accounts were read from.
        seen
            What another site accounts for.
        """
        known = Coverage.union(account.all for account in accounts.values()) | (seen or Coverage())
        keys = {key for key, _ in known.partitions()}
        ends = {
            (self._keys[topic], number): high
            for (topic, number), (_, high) in self._kafka.watermarks(self._topics).items()
        }
        for topic in self._topics:
            key = self._keys[topic]
            for wanted in sorted(other for other in keys if self._may_be(topic, other)):
                found = self._beyond(accounts, wanted, key, ends)
                if self._check:
                    samples = self._samples(topic, wanted, accounts)
                    found = differing(accounts, wanted, samples, self._check, objects) | found
                if not found and wanted != key:
                    self.same[wanted] = key
                for place, reason in found.items():
                    self._faults[place].append(reason)

    def renamed(self, accounts: Mapping[str, Account]) -> dict[str, Account]:
        """The accounts; offsets under other keys of a present topic count for that topic.

        Those are offsets that `settle` found to be of the same topic, stored without an id say.
        """
        return {table: account.renamed(self.same) for table, account in accounts.items()}

    def _may_be(self, topic: str, key: str) -> bool:
        """Whether offsets under a key may be those of the topic that Kafka has now."""
        name, topic_id = split_topic_key(key)
        if name != topic:
            return False
        if topic_id is None or key == self._keys[topic] or topic_id == self._ids.get(topic):
            return True
        # An epoch, and this source asks Kafka for ids now.
        return not self._settings.topic_epoch and not KAFKA_ID.fullmatch(topic_id)

    def judge(self, entry: Entry, account: Account) -> Entry:
        """The entry with what Kafka tells of its offsets."""
        if entry.topic not in self._keys:
            return entry
        key = topic_key(entry.topic, entry.topic_id)
        partition = key, entry.partition
        faults = list(self._faults.get((entry.table, partition), ()))
        if key != self._keys[entry.topic]:
            present = self._keys[entry.topic].partition("@")[2] or "no id"
            note = f"of an earlier topic of this name; Kafka's now has the id {present}"
            return entry._replace(notes=(note, *faults))
        low, high = self._spans.get(partition, (entry.low, entry.high))
        committed = self._committed[entry.table].get((entry.topic, entry.partition))
        gaps = entry.missing
        forgotten = within(gaps, 0, low)
        due = within(gaps, low, high if committed is None else committed)
        missing = self._messages(entry, due)
        in_flight = [] if committed is None else self._waiting(entry, within(gaps, committed, high))
        skipped = entry.missing_count - count(forgotten) - count(missing) - count(in_flight)
        if forgotten:
            faults.append(f"Kafka deleted {named(forgotten)} before they were stored")
        if not account.all.intervals(*partition):
            if low and not forgotten:
                faults.append(f"Kafka deleted offsets 0 to {low - 1:,} before any was stored")
            if missing:
                faults.append("nothing of this partition was ever stored")
        return entry._replace(
            missing=[*forgotten, *missing],
            in_flight=in_flight,
            not_messages=entry.not_messages + skipped,
            faults=tuple(faults),
        )

    def _beyond(
        self,
        accounts: Mapping[str, Account],
        wanted: str,
        key: str,
        ends: Mapping[PartitionId, int],
    ) -> dict[tuple[str, PartitionId], str]:
        """Offsets that are stored under the key `wanted` and that Kafka has never given out."""
        found = {}
        for table, account in accounts.items():
            for topic, number in account.all.partitions():
                if topic != wanted:
                    continue
                end = ends.get((key, number), 0)
                spans = within(account.all.intervals(topic, number), end, 1 << 62)
                if spans:
                    found[table, (wanted, number)] = (
                        f"{named(spans)} are stored, but Kafka's end is {end:,}: {ANEW}, or Kafka "
                        "lost its newest messages, or events came that are not from Kafka"
                    )
        return found

    def _samples(
        self, topic: str, wanted: str, accounts: Mapping[str, Account]
    ) -> dict[int, list[Record]]:
        """Messages of each partition whose offsets are accounted for under the key `wanted`."""
        numbers = random.Random(wanted)
        claimed = Coverage.union(account.all for account in accounts.values())
        partitions = [number for key, number in claimed.partitions() if key == wanted]
        samples = {}
        for partition in partitions:
            low, high = self._spans.get((self._keys[topic], partition), (0, 0))
            spans = within(claimed.intervals(wanted, partition), low, high)
            wish = max(LEAST, SAMPLES // len(partitions))
            messages = [
                self._kafka.message(topic, partition, offset)
                for offset in chosen(spans, wish, numbers)
            ]
            samples[partition] = list({m.offset: m for m in messages if m is not None}.values())
        return samples

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
                message = self._kafka.message(entry.topic, entry.partition, at)
                if message is None or message.offset >= high:
                    break
                at = message.offset + 1
                found.append((at - 1, at))
        return joined(found)

    def _waiting(self, entry: Entry, gaps: Sequence[Interval]) -> list[Interval]:
        """The gaps, each from its first message; those without any are left out."""
        found = []
        for low, high in gaps:
            message = self._kafka.message(entry.topic, entry.partition, low)
            if message is not None and message.offset < high:
                found.append((message.offset, high))
        return found
