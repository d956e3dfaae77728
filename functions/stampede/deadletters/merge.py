"""Merges small objects of dead letters, so that reading them all takes few requests.

A refused alert may make an object of its own. Objects are never changed: the merged one is written
and read back before those it was made of are deleted. A crash in between leaves letters twice, and
so does a purge at the same time; readers show such a letter once, and the next purge removes it.
"""

from collections.abc import Iterator

import pyarrow as pa

from stampede.deadletters.dead_letter import event_of, name_of, read_rows, write_rows
from stampede.errors import Damaged, NotFound, StoreDown
from stampede.store.integrity.dead_letter_offsets import DEAD_LETTERS
from stampede.store.objects.object_store import ObjectInfo, Objects

MOST_OBJECTS = 64
"""Small objects of a table that may stay as they are."""
SMALL_BYTES = 1 << 20
MERGED_BYTES = 8 << 20
"""About the size of a merged object: a purge of one of its letters writes all others again."""


def merge_letters(objects: Objects, table: str) -> int:
    """Merge the small objects of a table's dead letters if they are many; their number.

    Those that are damaged stay as they are. Raises `StoreDown`; merges done before it are kept.
    """
    small = [info for info in objects.list(f"{DEAD_LETTERS}{table}/") if info.size < SMALL_BYTES]
    if len(small) <= MOST_OBJECTS:
        return 0
    return sum(_merge(objects, table, group) for group in _groups(small))


def _groups(small: list[ObjectInfo]) -> Iterator[list[ObjectInfo]]:
    """The objects, oldest first, in groups of about `MERGED_BYTES`."""
    group: list[ObjectInfo] = []
    size = 0
    for info in sorted(small, key=lambda info: (info.modified, info.key)):
        group.append(info)
        size += info.size
        if size >= MERGED_BYTES:
            yield group
            group, size = [], 0
    if len(group) > 1:
        yield group


def _merge(objects: Objects, table: str, group: list[ObjectInfo]) -> int:
    contents: dict[str, pa.Table] = {}
    for info in group:
        try:
            contents[info.key] = read_rows(objects, info)
        except (Damaged, NotFound):
            continue
    if len(contents) < 2:
        return 0
    rows = _distinct(table, pa.concat_tables(contents.values()))
    key, data = write_rows(table, rows, list(contents))
    objects.put(key, data)
    if objects.get(key) != data:
        raise StoreDown(f"{key} does not read back as it was written: nothing was deleted for it")
    for old in contents:
        objects.delete(old)
    return len(contents)


def _distinct(table: str, rows: pa.Table) -> pa.Table:
    """Each letter once."""
    first: dict[str, int] = {}
    for number, row in enumerate(rows.select(["attributes", "data"]).to_pylist()):
        first.setdefault(name_of(table, event_of(row)), number)
    return rows.take(list(first.values()))
