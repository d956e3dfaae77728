"""The completeness ledger: which offsets are stored, which are dead letters, which are neither.

It is read from the footers in the store alone: those of a table's runs, and of its dead letters.
``received = stored + dead-lettered`` is thus a statement about what is durable, not about what
some counter said.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from stampede.errors import NotFound
from stampede.store.coverage import Coverage
from stampede.store.objects import ObjectInfo, Objects
from stampede.store.packs import COVERAGE
from stampede.store.tables import TABLES, Table

DEAD_LETTERS = "deadletters/"
EXPECTED = "expected/"  # how many alerts there are of what is no Kafka topic
TAIL = 16 << 10  # of such an object: far more than its footer, far less than its alerts

PartitionId = tuple[str, int]
Span = tuple[int, int]  # offsets [low, high)


class Account(NamedTuple):
    """What one table's coverage says."""

    stored: Coverage
    dead_lettered: Coverage

    @property
    def all(self) -> Coverage:
        """Every offset accounted for."""
        return self.stored | self.dead_lettered


class Entry(NamedTuple):
    """One partition, as one table accounts for it: numbers of offsets, and what is missing."""

    table: str
    topic: str
    partition: int
    low: int
    high: int
    stored: int
    dead_lettered: int
    missing: list[Span]

    @property
    def missing_count(self) -> int:
        """Number of offsets that are neither stored nor dead-lettered."""
        return sum(high - low for low, high in self.missing)


def accounts(objects: Objects, tables: Mapping[str, Table] | None = None) -> dict[str, Account]:
    """The account of every table, as the store is now. Raises `StoreDown`."""
    found = {}
    for name, spec in TABLES.items():
        # In this order: a letter is purged when its alert is stored, never the other way round.
        dead = dead_lettered(objects, name)
        table = tables[name] if tables else Table(objects, spec)
        table.refresh()
        found[name] = Account(table.coverage(), dead)
    return found


def dead_lettered(objects: Objects, table: str) -> Coverage:
    """Offsets that lie among the dead letters of a table. Raises `StoreDown`.

    Listed twice, as a purge may be under way: what is to stay of an object it writes into
    another before it deletes the one, but there a listing may have been already.
    """
    found: dict[str, Coverage] = {}
    for _ in range(2):
        for info in objects.list(f"{DEAD_LETTERS}{table}/"):
            if info.key not in found:
                with suppress(NotFound):
                    found[info.key] = coverage_of(objects, info)
    return Coverage.union(found.values())


def coverage_of(objects: Objects, info: ObjectInfo) -> Coverage:
    """What the footer of a pack or of an object of dead letters says it holds."""
    tail = objects.get(info.key, max(0, info.size - TAIL))
    if int.from_bytes(tail[-8:-4], "little") + 8 > len(tail):
        tail = objects.get(info.key)
    return Coverage.from_json(pq.read_metadata(pa.BufferReader(tail)).metadata[COVERAGE])


def expect(objects: Objects, topic: str, count: int) -> None:
    """Put on record that `topic`, which Kafka does not know, has `count` alerts in partition 0."""
    objects.put(f"{EXPECTED}{topic}", str(count).encode())


def expected(objects: Objects) -> dict[PartitionId, Span]:
    """What `expect` put on record."""
    found = [info.key for info in objects.list(EXPECTED)]
    return {(key.removeprefix(EXPECTED), 0): (0, int(objects.get(key))) for key in found}


def entries(
    found: Mapping[str, Account], known: Mapping[PartitionId, Span] | None = None
) -> list[Entry]:
    """The ledger, a line per table and partition.

    Parameters
    ----------
    found
        As `accounts` gives it.
    known
        Offsets ``[low, high)`` that each partition has, say by Kafka. Partitions not in it are
        taken to reach from the lowest to the highest offset that any table accounts for. What
        lies below `low` but above an offset that was stored is expected as well: Kafka has
        forgotten it, the ledger has not.
    """
    spans_of = dict(known or {})
    seen = Coverage.union(account.all for account in found.values())
    for partition in {*seen.partitions(), *spans_of}:
        spans = seen.intervals(*partition)
        low, high = spans_of.get(partition, (spans[0][0], spans[-1][1]) if spans else (0, 0))
        spans_of[partition] = (min(low, spans[0][0]) if spans else low, high)
    return [
        Entry(
            table,
            topic,
            partition,
            low,
            high,
            _count(account.stored, topic, partition),
            _count(account.dead_lettered - account.stored, topic, partition),
            account.all.missing(topic, partition, low, high),
        )
        for table, account in found.items()
        for (topic, partition), (low, high) in sorted(spans_of.items())
    ]


def _count(coverage: Coverage, topic: str, partition: int) -> int:
    return sum(high - low for low, high in coverage.intervals(topic, partition))
