"""The leading keys of a table that begin with a text, in order, as many as are asked for."""

import heapq
from collections.abc import Iterator
from itertools import chain, groupby, islice

import numpy as np

from stampede.errors import NotFound, StoreDown
from stampede.store.parquet.range_file import ChangedObject
from stampede.store.runs.bloom_filters import Wanted
from stampede.store.runs.keys import bounds
from stampede.store.runs.run import RunInfo
from stampede.store.tables.row_finder import Fetch, Piece
from stampede.store.tables.table import Table

_TRIES = 5


def keys_with_prefix(table: Table, prefix: str, most: int, after: str | None = None) -> list[str]:
    """The first `most` leading keys of rows that begin with `prefix`, each once, ascending.

    Only those greater than `after`, unless that is None.

    Reads the runs of the last `Table.refresh`, or newer ones: of each part that may have such keys
    an index and a row group, and more of them until there are `most` keys. What is damaged is left
    out. Raises `StoreDown`.
    """
    for _ in range(_TRIES):
        try:
            runs = [run for run in table.runs() if _may_have(run, prefix, after, table)]
            found = [_keys(table, run, prefix, after) for run in table.finder.with_sections(runs)]
            firsts = table.map(lambda keys: list(islice(keys, 1)), found)  # requests at once
            merged = heapq.merge(*map(chain, firsts, found))
            return [key for key, _ in islice(groupby(merged), most)]
        except (NotFound, ChangedObject):
            table.refresh()
    raise StoreDown(f"runs of {table.spec.name} vanish faster than they can be read")


def _keys(table: Table, run: RunInfo, prefix: str, after: str | None) -> Iterator[str]:
    """The keys of a part that begin with `prefix` and are greater than `after`, ascending."""
    sections: list[int | None] = [None]
    if run.sections:
        sections = [*_inside(*run.sections.ends, prefix, after)]
    for section in sections:
        index = table.finder.index(Piece(run, section, Wanted.of([], table.spec)))
        if index is None:
            continue
        for place in _inside(index.firsts, index.lasts, prefix, after):
            group = place + index.first
            if not table.listing.quarantine.holds(run.key, group):
                for block in table.finder.blocks(Fetch(run, index, [group], ())):
                    keys = (key for key in block.keys if key.startswith(prefix))
                    yield from (key for key in keys if after is None or key > after)


def _may_have(run: RunInfo, prefix: str, after: str | None, table: Table) -> bool:
    """Whether a part may have keys that begin with `prefix` and are greater than `after`."""
    if not run.rows:
        return False
    ends = bounds([run.first], table.spec), bounds([run.last], table.spec, upper=True)
    return bool(_inside(*ends, prefix, after))


def _inside(firsts: np.ndarray, lasts: np.ndarray, prefix: str, after: str | None) -> list[int]:
    """Numbers of the ranges of keys that may have any that are wanted, ascending."""
    begin = prefix.encode()
    least = max(begin, (after or "").encode())
    found: list[int] = np.flatnonzero((firsts <= begin + b"\xff") & (lasts >= least)).tolist()
    return found
