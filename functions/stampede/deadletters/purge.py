"""Removes dead letters from the store, without a risk for the letters that stay.

Objects are never changed. If letters of an object stay, they go into a new object, which is read
back before the old one is deleted. A crash between the two steps leaves these letters twice;
readers show them once.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from stampede.deadletters.dead_letter import event_of, name_of, table_of_key, write_rows
from stampede.deadletters.reader import DeadLetterReader
from stampede.errors import StoreDown
from stampede.events.cloudevents.event import Event
from stampede.store.objects.object_store import Objects


class Purged(NamedTuple):
    """How many letters were removed, and how many stay; a letter in two objects counts once."""

    removed: int
    kept: int


def purge(
    objects: Objects,
    reader: DeadLetterReader,
    removable: Callable[[str, Sequence[Event]], Sequence[bool]],
) -> Purged:
    """Remove each letter of `reader` for whose table and event `removable` returns True.

    Raises `StoreDown`; the letters removed before stay removed, and the others are unchanged.
    """
    removed: set[str] = set()
    kept: set[str] = set()
    for info, rows in reader.contents():
        table = table_of_key(info.key)
        events = [event_of(row) for row in rows.select(["attributes", "data"]).to_pylist()]
        goes = removable(table, events)
        if any(goes):
            if not all(goes):
                stay = rows.filter(pc.invert(pa.array(goes)))
                _put(objects, *write_rows(table, stay, [info.key]))
            objects.delete(info.key)
        for event, going in zip(events, goes, strict=True):
            (removed if going else kept).add(name_of(table, event))
    return Purged(len(removed), len(kept))


def _put(objects: Objects, key: str, data: bytes) -> None:
    objects.put(key, data)
    if objects.get(key) != data:
        raise StoreDown(f"{key} does not read back as it was written: nothing was deleted for it")
