"""Removes dead letters from the store, without a risk for the letters that stay.

Objects are never changed. If letters of an object stay, they go into a new object, which is read
back before the old one is deleted. A crash between the two steps leaves these letters twice;
readers show them once.
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
    reader: DeadLetterReader,
    removable: Callable[[str, Position | None], bool],
) -> Purged:
    """Remove each letter of `reader` for whose table and position `removable` returns True.

    Raises `StoreDown`; the letters removed before stay removed, and the others are unchanged.
    """
    removed = kept = 0
    for info, rows in reader.contents():
        table = table_of_key(info.key)
        stays = [not removable(table, position) for position in positions(rows)]
        if not all(stays):
            if any(stays):
                _put(objects, *write_rows(table, rows.filter(pa.array(stays))))
            objects.delete(info.key)
        kept += sum(stays)
        removed += len(stays) - sum(stays)
    return Purged(removed, kept)


def _put(objects: Objects, key: str, data: bytes) -> None:
    objects.put(key, data)
    if objects.get(key) != data:
        raise StoreDown(f"{key} does not read back as it was written: nothing was deleted for it")
