"""Look-ups of single ids that find no rows in memory, and the memory that they leave in use."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stampede.errors import StampedeError
from stampede.store.cache import Cache
from stampede.store.tables import Table


class Indexes(Cache):
    """The part of another cache that holds the indexes of runs: rows are not cached."""

    def __init__(self, other: Cache) -> None:
        super().__init__(other.limit)
        self._other = other

    def get(self, name: tuple) -> Any:
        """See `Cache.get`."""
        return self._other.get(name)

    def put(self, name: tuple, value: object, size: int) -> None:
        """See `Cache.put`. Rows are dropped."""
        if name[0] == "index":
            self._other.put(name, value, size)


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
