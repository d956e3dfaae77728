"""Finds rows of tables of locations that point to packs that are lost, or beyond their end."""

from collections.abc import Callable, Container, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.store.integrity.referenced_packs import NamedPacks
from stampede.store.objects.object_store import find, gives_others
from stampede.store.tables.table import Table

LOST = "lost: rows point to it"


def lost_packs(
    table: Table, parts: Container[str], packs: NamedPacks, expired: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """The packs into which rows of these parts point in vain: key and reason.

    Rows that lose to other versions do not count.

    Parameters
    ----------
    parts
        Keys of parts of runs; those that are not live are left out.
    expired
        Whether an object of that key is past its retention.

    Raises `StoreDown`.
    """
    if not table.spec.ranges:
        return
    lost: set[str] = set()
    for key, end, ids in _ends(table, parts):
        if key in lost or expired(key) or packs.reach(key, end):
            continue
        # A listing may omit a key, or be older than the pack.
        info = find(table.objects, key)
        if (info is None or end > info.size) and _wins(table, key, ids):
            lost.add(key)
            yield key, "rows point beyond its end" if info else LOST


def _ends(table: Table, parts: Container[str]) -> Iterator[tuple[str, int, pa.Array]]:
    """For each row group the packs that it names, where their last image ends, and whose it is."""
    for part in table.runs():
        if part.key not in parts:
            continue
        try:
            file = table.reader.open(part)
            for group in file.numbers:
                [rows] = file.read([group])
                for offset, length in table.spec.ranges:
                    some = rows.filter(pc.is_valid(rows[offset]))
                    ends = pc.add(some[offset], some[length])
                    columns = {"end": ends, "pack": some["pack"], "alert_id": some["alert_id"]}
                    by_pack = pa.table(columns).group_by("pack")
                    found = by_pack.aggregate([("end", "max"), ("alert_id", "distinct")])
                    keys, last = found["pack"].to_pylist(), found["end_max"].to_pylist()
                    for key, end, ids in zip(keys, last, found["alert_id_distinct"], strict=True):
                        yield key, end, ids.values
        except (NotFound, Damaged):  # merged meanwhile, or named already
            continue
        except StoreDown:
            if not gives_others(table.objects, part.key):
                raise


def _wins(table: Table, key: str, ids: pa.Array) -> bool:
    """Whether any row of these alerts that readers get points into a pack."""
    try:
        rows = table.lookup(ids.to_pylist())
    except StoreDown:
        if not gives_others(table.objects, key):
            raise
        return True  # as far as the runs tell that can be read
    return pc.any(pc.equal(rows["pack"], key)).as_py() or False
