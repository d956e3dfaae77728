"""Removes dead letters from the store, and never one that was to stay.

Objects are not changed, so what stays of one is written anew and read back before the old one
is deleted. Cut short between the two, letters are there twice, which is the same as once.
"""

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from stampede.deadletters.dead_letter import positions, table_of_key, write_rows
from stampede.deadletters.reader import DeadLetterReader
from stampede.errors import StoreDown
from stampede.events.event import Position
from stampede.store.objects import Objects


class Purged(NamedTuple):
    """How many rows were removed, and how many stay."""

    removed: int
    kept: int


def purge(
    objects: Objects,
    shelf: DeadLetterReader,
    gone: Callable[[str, Position | None], bool],
    tell: Callable[[Purged], None] = lambda done: None,
) -> Purged:
    """Remove the letters on the shelf for whose table and position `gone` holds.

    Raises `StoreDown`; what was removed until then is removed, all else as it was.
    """
    removed = kept = 0
    for info, rows in shelf.contents():
        table = table_of_key(info.key)
        stays = [not gone(table, position) for position in positions(rows)]
        if not all(stays):
            if any(stays):
                _put(objects, *write_rows(table, rows.filter(pa.array(stays))))
            objects.delete(info.key)
        kept += sum(stays)
        removed += len(stays) - sum(stays)
        tell(Purged(removed, kept))
    return Purged(removed, kept)


def _put(objects: Objects, key: str, data: bytes) -> None:
    objects.put(key, data)
    if objects.get(key) != data:
        raise StoreDown(f"{key} does not read as it was just stored: nothing was deleted for it")
