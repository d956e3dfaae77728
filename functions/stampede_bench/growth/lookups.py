"""Look-ups of single ids that find no rows in memory, and the memory that they leave in use."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.store.objects.lru_cache import Cache
from stampede.store.tables.table import Table
from stampede_bench.instruments.bucket import open_bucket


class Indexes(Cache):
    """The part of another cache that holds the indexes of runs: rows are not cached."""

    def __init__(self, other: Cache) -> None:
        super().__init__(other.limit)
        self._other = other

    def get(self, name: tuple[Any, ...]) -> Any:
        """See `Cache.get`."""
        return self._other.get(name)

    def put(self, name: tuple[Any, ...], value: object, size: int) -> None:
        """See `Cache.put`. Rows are dropped."""
        if name[0] == "index":
            self._other.put(name, value, size)


def keep_indexes_only(table: Table) -> Cache:
    """Let a table have all its indexes in memory and no rows; return the cache that it had.

    A process reads each index once. All rows of a small table would soon be in memory.
    """
    for run in table.runs():
        for section in range(len(run.sections.listed)) if run.sections is not None else [None]:
            table.reader.index(run, section)
    usual, table.reader.cache = table.reader.cache, Indexes(table.reader.cache)
    return usual


def in_turn(
    table: Table, ids: Sequence[int | str], smallest: Settings, its_ids: Sequence[int | str]
) -> tuple[list[float], list[float]]:
    """Milliseconds of look-ups in a table, and in the same table of another bucket, in turn.

    A shared host may be half as fast ten seconds later.
    """
    other = Table(open_bucket(smallest), table.spec, table.reader.cache.limit)
    other.refresh()
    keep_indexes_only(other)
    found: list[float] = []
    beside: list[float] = []
    for one, its in zip(ids, its_ids, strict=True):
        found += lookups(table, [one])
        beside += lookups(other, [its])
    other.close()
    return found, beside


def lookups(table: Table, ids: Sequence[int | str]) -> list[float]:
    """Milliseconds of each look-up."""
    spent = []
    for one in ids:
        begin = time.perf_counter()
        found = table.lookup([one])
        spent.append(1e3 * (time.perf_counter() - begin))
        if not found.num_rows:
            raise StampedeError(f"{table.spec.name} does not find {one}")
    return spent


def resident() -> float:
    """MB of memory that this process holds (proc(5), ``VmRSS``)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
