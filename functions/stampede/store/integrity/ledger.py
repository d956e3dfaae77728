"""The completeness ledger: which offsets are stored, which are dead letters, which are neither.

It is read only from footers in the store, or from their copies in a checkpoint: those of a table's
runs and of its dead letters. The letters that an operator has accepted as rightly refused are in
objects too. So ``received = stored + dead-lettered`` is a statement about durable objects, not
about a counter.
"""

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from stampede.errors import Damaged
from stampede.store.integrity.dead_letter_offsets import DeadLetterOffsets
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage, Interval, PartitionId, split_topic_key
from stampede.store.runs.schema import TABLES
from stampede.store.tables.table import Table

EXPECTED = "expected/"  # the number of alerts of each source that is not a Kafka topic
NUMBER = re.compile(b"[0-9]{1,18}")


@dataclass(frozen=True)
class Account:
    """The offsets that one table accounts for.

    `quarantined` names the runs and the objects of dead letters that cannot be read or verified,
    and why: their offsets do not count.
    `not_messages` are offsets that Kafka's consumers skip, such as the control records of
    transactions: the source noticed them.
    `accepted` are those of `dead_lettered` that an operator has accepted as rightly refused.
    """

    stored: Coverage
    dead_lettered: Coverage
    quarantined: Mapping[str, str] = field(default_factory=dict)
    not_messages: Coverage = field(default_factory=Coverage)
    accepted: Coverage = field(default_factory=Coverage)

    @cached_property
    def all(self) -> Coverage:
        """Every offset accounted for."""
        return self.stored | self.dead_lettered

    @cached_property
    def dead_alone(self) -> Coverage:
        """The offsets of dead letters that are not stored."""
        return self.dead_lettered - self.stored

    @cached_property
    def accepted_alone(self) -> Coverage:
        """The offsets of dead letters that are accepted, and not stored."""
        return self.accepted - self.stored

    @cached_property
    def skipped_alone(self) -> Coverage:
        """The offsets that are no messages, and not accounted for."""
        return self.not_messages - self.all

    @cached_property
    def known(self) -> Coverage:
        """Every offset of which something is known."""
        return self.all | self.not_messages

    def renamed(self, topic_keys: Mapping[str, str]) -> "Account":
        """The same offsets under other topic keys; see `Coverage.renamed`."""
        stored, dead, others, accepted = (
            one.renamed(topic_keys)
            for one in (self.stored, self.dead_lettered, self.not_messages, self.accepted)
        )
        return Account(stored, dead, self.quarantined, others, accepted)


class Entry(NamedTuple):
    """One partition in one table: numbers of offsets, and the missing intervals.

    Topics of one name and different `topic_id` are different topics: Kafka's was made anew, or the
    cluster was replaced. `topic_id` is None for offsets that were stored without an id.

    `accepted` is how many of `dead_lettered` an operator has accepted as rightly refused.

    The five before it are known only if Kafka was asked: messages that are not due yet, offsets of
    neither kind that are no messages (control records of transactions, for example), what is wrong
    besides, what else there is to say, and the messages that were deleted together with their topic
    before this table had them.
    """

    table: str
    topic: str
    topic_id: str | None
    partition: int
    low: int
    high: int
    stored: int
    dead_lettered: int
    missing: list[Interval]
    in_flight: Sequence[Interval] = ()
    not_messages: int = 0
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    deleted: Sequence[Interval] = ()
    accepted: int = 0

    @property
    def received(self) -> int:
        """Number of messages."""
        return self.high - self.low - self.not_messages

    @property
    def missing_count(self) -> int:
        """Number of offsets that are neither stored nor dead-lettered, though they were due."""
        return sum(high - low for low, high in self.missing)

    @property
    def in_flight_count(self) -> int:
        """Number of offsets that Kafka has and that the source is still to deliver."""
        return sum(high - low for low, high in self.in_flight)


def accounts(
    objects: Objects,
    tables: Mapping[str, Table] | None = None,
    letters: DeadLetterOffsets | None = None,
) -> dict[str, Account]:
    """The account of every table, from the store's present state. Raises `StoreDown`.

    Give the same `tables` and `letters` again, and only what is new is read.
    """
    by_table = {}
    letters = letters or DeadLetterOffsets(objects)
    for name, spec in TABLES.items():
        # Dead letters first: one may be purged as soon as its alert is stored, never before.
        quarantined: dict[str, str] = {}
        dead = letters.of_table(name, quarantined)
        table = tables[name] if tables else Table(objects, spec)
        table.refresh()
        stored, skipped = table.coverage().split()
        dead, skipped_before_dead = dead.split()
        by_table[name] = Account(
            stored,
            dead,
            quarantined | dict(table.quarantined()),
            skipped | skipped_before_dead,
            letters.accepted(name),
        )
    return by_table


def count_dead(by_table: Mapping[str, Account]) -> int:
    """How many alerts are dead letters of a table, or of several, and not stored in it."""
    return len(Coverage.union([account.dead_alone for account in by_table.values()]))


def count_refused(by_table: Mapping[str, Account]) -> int:
    """How many of `count_dead` are not accepted as rightly refused in every table."""
    refused = [account.dead_alone - account.accepted for account in by_table.values()]
    return len(Coverage.union(refused))


def letters_in_words(count: int, accepted: int) -> str:
    """A number of dead letters as people read it, with how many of them are accepted."""
    return f"{count:,} ({accepted:,} accepted)" if accepted else f"{count:,}"


def quarantined(by_table: Mapping[str, Account]) -> dict[str, str]:
    """The objects that any of the accounts leaves out, and why."""
    return {key: why for account in by_table.values() for key, why in account.quarantined.items()}


def expect(objects: Objects, topic: str, count: int) -> None:
    """Record that `topic`, which Kafka does not know, has `count` alerts in partition 0."""
    objects.put(f"{EXPECTED}{topic}", _checked(topic, count))


def expected(
    objects: Objects, quarantined: dict[str, str] | None = None
) -> dict[PartitionId, Interval]:
    """The offsets of each partition that `expect` recorded.

    An object without a number raises `Damaged`, or is added to `quarantined` if that is given.
    """
    spans = {}
    for info in objects.list(EXPECTED):
        try:
            number = parse_expected(info.key, objects.get(info.key))
            spans[info.key.removeprefix(EXPECTED), 0] = 0, number
        except Damaged as error:
            if quarantined is None:
                raise
            quarantined[info.key] = error.message
    return spans


def parse_expected(key: str, data: bytes) -> int:
    """The number of alerts in an object that `expect` wrote. Raises `Damaged`.

    An object that was written before there were checksums is the number alone. The checksum comes
    first, so that no part of an object of today passes for one of those.
    """
    number = data.rpartition(b" ")[2]
    if not NUMBER.fullmatch(number):
        raise Damaged(f"{key} does not hold a number: ingest the same files again")
    count = int(number)
    if data not in (number, _checked(key.removeprefix(EXPECTED), count)):
        raise Damaged(f"{key} does not hold the number that was stored: ingest the files again")
    return count


def _checked(topic: str, count: int) -> bytes:
    """A count and its checksum, which holds the topic too."""
    return f"crc32:{zlib.crc32(f'{topic} {count}'.encode()):08x} {count}".encode()


def entries(
    by_table: Mapping[str, Account], known: Mapping[PartitionId, Interval] | None = None
) -> list[Entry]:
    """The ledger: an entry per table and partition.

    Parameters
    ----------
    by_table
        The account of each table, as `accounts` returns it.
    known
        Offsets ``[low, high)`` of each partition, for example from Kafka. Other partitions are
        taken to reach from the lowest to the highest offset that any table accounts for. Offsets
        below `low` but above a stored offset are expected too: Kafka has deleted them, but the
        ledger still counts them.
    """
    ranges = dict(known or {})
    seen = Coverage.union(account.all for account in by_table.values())
    for partition in {*seen.partitions(), *ranges}:
        spans = seen.intervals(*partition)
        low, high = ranges.get(partition, (spans[0][0], spans[-1][1]) if spans else (0, 0))
        ranges[partition] = (min(low, spans[0][0]) if spans else low, high)
    return [
        entry_of(table, account, partition, low, high)
        for table, account in by_table.items()
        for partition, (low, high) in sorted(ranges.items())
    ]


def entry_of(table: str, account: Account, place: PartitionId, low: int, high: int) -> Entry:
    """The entry of a table and partition whose offsets are ``[low, high)``."""
    topic, topic_id = split_topic_key(place[0])
    number = place[1]
    return Entry(
        table,
        topic,
        topic_id,
        number,
        low,
        high,
        _count_offsets(account.stored, *place),
        _count_offsets(account.dead_alone, *place),
        account.known.missing(*place, low, high),
        not_messages=_count_offsets(account.skipped_alone, *place),
        accepted=_count_offsets(account.accepted_alone, *place),
    )


def _count_offsets(coverage: Coverage, topic: str, partition: int) -> int:
    return sum(high - low for low, high in coverage.intervals(topic, partition))
