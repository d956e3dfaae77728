"""Compares the ledger with Kafka itself, message by message where offsets alone prove nothing.

An offset in the ledger says that *an* alert was stored under it. Whether it is the alert that Kafka
has there now, whether a gap is a message at all, and whether a message was due already, only Kafka
can tell.
"""

import random
from collections import defaultdict
from collections.abc import Mapping

from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.deadletters.stored import AlertCheck
from stampede.events.cloudevents.kafka_record import Record
from stampede.events.kafka.gaps import GAP_MESSAGES, KafkaGaps
from stampede.handlers.audit.kafka_samples import ANEW, LEAST, SAMPLES, chosen, differing
from stampede.store.integrity.ledger import Account, Entry
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage, Interval, PartitionId, topic_key
from stampede.store.offsets.intervals import named, within


class KafkaAudit:
    """The audit of topics that are in Kafka; a context manager.

    Call in this order: `expected`, then read the ledger, then `settle`, then `judge`. What Kafka
    receives after `expected` is not expected, and what is stored by `settle` must be in Kafka.
    Methods raise `SetupError` if Kafka does not answer or lacks a topic.

    Parameters
    ----------
    topics
        Names and families of topics.
    check
        Says whether alerts are in the audited store; None to compare offsets only.
    """

    def __init__(self, settings: Settings, topics: Topics, check: AlertCheck | None = None) -> None:
        self._settings = settings
        self._check = check
        self._gaps = KafkaGaps(settings, topics, gap_messages=GAP_MESSAGES)
        self._kafka = self._gaps.kafka
        self.same: dict[str, str] = {}  # other keys of a present topic, and its key
        self._faults: dict[tuple[str, PartitionId], list[str]] = defaultdict(list)

    def __enter__(self) -> "KafkaAudit":
        return self

    def __exit__(self, *_: object) -> None:
        self._kafka.close()

    def expected(self) -> dict[PartitionId, Interval]:
        """The offsets that Kafka has or had of each partition, by topic key."""
        return self._gaps.expected()

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
            (self._gaps.keys[topic], number): high
            for (topic, number), (_, high) in self._kafka.watermarks(self._gaps.topics).items()
        }
        for topic in self._gaps.topics:
            key = self._gaps.keys[topic]
            for wanted in sorted(other for other in keys if self._gaps.may_be(topic, other)):
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

    def judge(self, entry: Entry, account: Account) -> Entry:
        """The entry with what Kafka tells of its offsets."""
        keys = self._gaps.keys
        if entry.topic not in keys:
            if not self._gaps.is_earlier(entry):
                return entry
            judged = self._gaps.judge(entry, account)
            return judged._replace(notes=("Kafka has deleted this topic", *judged.notes))
        key = topic_key(entry.topic, entry.topic_id)
        faults = tuple(self._faults.get((entry.table, (key, entry.partition)), ()))
        if key != keys[entry.topic]:
            present = keys[entry.topic].partition("@")[2] or "no id"
            note = f"of an earlier topic of this name; Kafka's now has the id {present}"
            judged = self._gaps.judge(entry, account)
            return judged._replace(notes=(note, *judged.notes, *faults))
        judged = self._gaps.judge(entry, account)
        return judged._replace(faults=faults + judged.faults)

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
            low, high = self._gaps.spans.get((self._gaps.keys[topic], partition), (0, 0))
            spans = within(claimed.intervals(wanted, partition), low, high)
            wish = max(LEAST, SAMPLES // len(partitions))
            messages = [
                self._kafka.message(topic, partition, offset)
                for offset in chosen(spans, wish, numbers)
            ]
            samples[partition] = list({m.offset: m for m in messages if m is not None}.values())
        return samples
