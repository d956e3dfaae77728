"""The entries of the ledger by topic, and their sums: made again only where offsets have changed.

A survey with a topic a night has 8,000 topics in ten years of two programmes, and two tables of 16
partitions each: 256,000 entries. Of almost all of them nothing changes any more.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, groupby
from operator import is_, itemgetter
from typing import Any, NamedTuple

import numpy as np

from stampede.store.integrity.ledger import Account, Entry, entry_of
from stampede.store.offsets.coverage import (
    Coverage,
    Interval,
    PartitionId,
    arrays,
    same_spans,
    split_topic_key,
)

_NONE = Coverage()


class Sums(NamedTuple):
    """All partitions of a topic in one table, together."""

    partitions: int = 0
    received: int = 0
    stored: int = 0
    dead_lettered: int = 0
    accepted: int = 0
    missing: int = 0
    in_flight: int = 0

    @classmethod
    def of(cls, several: Sequence["Sums"]) -> "Sums":
        """The sums of several topics."""
        return cls(*map(sum, zip(*several, strict=True)))


@dataclass(frozen=True, eq=False)
class TopicEntries:
    """The entries of one topic: table by table, and in each by partition.

    For `entries_by_topic`: `seen` are the arrays of offsets that they follow from, and `asked` is
    whether they follow from Kafka's ranges too.
    """

    key: str
    entries: tuple[Entry, ...]
    seen: list[Any]
    asked: bool = False

    @property
    def topic(self) -> str:
        """Its name."""
        return self.entries[0].topic

    @property
    def topic_id(self) -> str | None:
        """Its id, if that is known."""
        return self.entries[0].topic_id

    @cached_property
    def lacks(self) -> bool:
        """Whether anything is missing, or wrong."""
        return any(entry.missing or entry.faults for entry in self.entries)

    @cached_property
    def by_table(self) -> Mapping[str, Sums]:
        """The sums of each table."""
        found: dict[str, Sums] = {}
        for table, group in groupby(self.entries, lambda entry: entry.table):
            of_table = list(group)
            found[table] = Sums(
                len(of_table),
                sum(one.high - one.low - one.not_messages for one in of_table),
                sum(one.stored for one in of_table),
                sum(one.dead_lettered for one in of_table),
                sum(one.accepted for one in of_table),
                sum(one.missing_count for one in of_table if one.missing),
                sum(one.in_flight_count for one in of_table if one.in_flight),
            )
        return found

    @cached_property
    def received(self) -> int:
        """Number of messages: of each partition as many as the table with most has received."""
        count = self.by_table[self.entries[0].table].partitions
        tables = [
            self.entries[start : start + count] for start in range(0, len(self.entries), count)
        ]
        return sum(max(one.received for one in same) for same in zip(*tables, strict=True))

    @cached_property
    def deleted(self) -> int:
        """Number of messages that were deleted with the topic before a table had them."""
        return sum(high - low for entry in self.entries for low, high in entry.deleted)

    def map(self, function: Callable[[Entry], Entry]) -> "TopicEntries":
        """What `function` makes of each entry; the same object if it changes none."""
        entries = tuple(map(function, self.entries))
        return self if all(map(is_, entries, self.entries)) else replace(self, entries=entries)


class TopicLedger:
    """The entries by topic, as of the last reading."""

    def __init__(self) -> None:
        self._tables: tuple[str, ...] = ()
        self._topics: dict[str, TopicEntries] = {}
        self._accounts: Sequence[Coverage] = ()
        self._known: Mapping[PartitionId, Interval] = {}

    def read(
        self, accounts: Mapping[str, Account], known: Mapping[PartitionId, Interval]
    ) -> dict[str, TopicEntries]:
        """As `entries_by_topic`; nothing is done if nothing has changed since the last call."""
        if self._tables != tuple(accounts):  # entries are in the order of the tables
            self._tables, self._topics, self._accounts = tuple(accounts), {}, ()
        each = [
            (one.stored, one.dead_lettered, one.not_messages, one.accepted)
            for one in accounts.values()
        ]
        held = [coverage if coverage else _NONE for group in each for coverage in group]
        same = len(held) == len(self._accounts) and all(map(is_, held, self._accounts))
        if not same or known != self._known:
            self._topics = entries_by_topic(accounts, known, self._topics)
            self._accounts, self._known = held, known
        return self._topics


def entries_by_topic(
    accounts: Mapping[str, Account],
    known: Mapping[PartitionId, Interval] | None = None,
    before: Mapping[str, TopicEntries] | None = None,
) -> dict[str, TopicEntries]:
    """The entries of `ledger.entries` by the keys of topics, in order.

    Parameters
    ----------
    accounts, known
        As there.
    before
        What an earlier call returned: topics whose offsets are the same arrays are taken from it.
    """
    known, before = known or {}, before or {}
    held = [arrays(one) for each in accounts.values() for one in (each.stored, each.dead_lettered)]
    columns = [*held, *(arrays(one.not_messages) for one in accounts.values())]
    columns += [arrays(one.accepted) for one in accounts.values()]
    topics = [{topic for topic, _ in column} for column in columns]
    asked = {topic for topic, _ in known}
    found: dict[str, TopicEntries] = {}
    for key, group in groupby(_in_order(held, known), itemgetter(0)):
        places = list(group)
        here = [number for number, names in enumerate(topics) if key in names]
        seen = [*here, *chain.from_iterable(map(columns[one].get, places) for one in here)]
        earlier = before.get(key)
        if earlier is None or earlier.asked or key in asked or not _same(earlier.seen, seen):
            entries = _whole(accounts, places, here, seen) if key not in asked else None
            entries = entries or _entries(accounts, places, held, known)
            found[key] = TopicEntries(key, entries, seen, key in asked)
        else:
            earlier.seen[:] = seen  # equal, but perhaps of another merge
            found[key] = earlier
    return found


def in_order(topics: Iterable[TopicEntries], tables: Iterable[str]) -> Iterator[Entry]:
    """All entries as `ledger.entries` has them: table by table."""
    topics = list(topics)
    for number, _ in enumerate(tables):
        for one in topics:
            count = one.by_table[one.entries[0].table].partitions
            yield from one.entries[number * count : (number + 1) * count]


def _in_order(
    columns: Sequence[Mapping[PartitionId, np.ndarray]], known: Mapping[PartitionId, Interval]
) -> Iterable[PartitionId]:
    """The partitions in any of these, in order."""
    largest = max(columns, key=len, default={})
    others = set(known).difference(largest)
    others.update(*(each.keys() - largest.keys() for each in columns if each is not largest))
    return sorted([*largest, *others]) if others else largest


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether the arrays are equal: nearly always they are the same objects."""
    if len(one) != len(other):
        return False
    return all(map(is_, one, other)) or all(map(_equal, one, other))


def _equal(one: Any, other: Any) -> bool:
    both = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    return one is other or (both and same_spans(one, other))


def _whole(
    accounts: Mapping[str, Account],
    places: Sequence[PartitionId],
    here: Sequence[int],
    seen: Sequence[Any],
) -> tuple[Entry, ...] | None:
    """The entries of a topic of which every table has stored all, as of most; None of others."""
    spans = seen[len(here) :]
    stored = [2 * number for number in range(len(accounts))]  # the places of these in `held`
    if here != stored or any(one is None or len(one) != 1 for one in spans):
        return None
    ends = np.concatenate(spans).reshape(len(accounts), -1, 2)
    if not (ends == ends[0]).all():
        return None
    topic, topic_id = split_topic_key(places[0][0])
    numbers = [(number, *span) for (_, number), span in zip(places, ends[0].tolist(), strict=True)]
    return tuple(
        Entry(table, topic, topic_id, number, low, high, high - low, 0, [])
        for table in accounts
        for number, low, high in numbers
    )


def _entries(
    accounts: Mapping[str, Account],
    places: Sequence[PartitionId],
    held: Sequence[Mapping[PartitionId, np.ndarray]],
    known: Mapping[PartitionId, Interval],
) -> tuple[Entry, ...]:
    """The entries of a topic's partitions."""
    ranges = []
    for place in places:
        spans = [column[place] for column in held if place in column]
        low = min((int(one[0, 0]) for one in spans), default=None)
        if place in known:
            first, high = known[place]
            ranges.append((first if low is None else min(first, low), high))
        else:
            ranges.append((low or 0, max(int(one[-1, 1]) for one in spans)))
    return tuple(
        entry_of(table, account, place, *span)
        for table, account in accounts.items()
        for place, span in zip(places, ranges, strict=True)
    )
