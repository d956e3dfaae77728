"""Removes the data of observing programmes, or of an archive, that are no longer stored.

Objects are never changed. A run that has such rows is merged alone into a run of the next level
without them: by the protocol (docs/store.md) that run is live, and the old one may be deleted.
Packs and raw copies have their programmes in their names, and are deleted as a whole.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import chain

import pyarrow as pa

from stampede.errors import NotFound
from stampede.store.compaction.compact import Policy, Report, merge
from stampede.store.compaction.garbage_collection import GarbageCollector
from stampede.store.integrity.verified_objects import footer_of, read_column
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.packs.raw_alerts import PREFIX
from stampede.store.programmes.rights import Rights
from stampede.store.runs.run import Run, RunInfo, live
from stampede.store.runs.schema import PACK_SPECS
from stampede.store.tables.table import Table

COLUMNS = ("programid", "pack")
"""Columns that tell the programme of a row; a table has one of them."""
LATER = timedelta(minutes=15)
"""By more no two clocks here differ: what was written just now is old enough to stand for its
input, whichever clock dated it."""


def withheld_runs(table: Table) -> list[Run]:
    """The live runs of the last `refresh` that have rows of what the table's rights leave out.

    Raises `Damaged`, `StoreDown`; `NotFound` if one was merged meanwhile.
    """
    return [run for run in live(table.runs()) if any(_withheld(table, part) for part in run)]


def purge_table(table: Table, run_rows: int, show: Callable[[str], None]) -> int:
    """Rewrite the runs of `withheld_runs`, and delete them; how many there were.

    Parameters
    ----------
    run_rows
        Approximate number of rows of each part of a run.
    show
        Called with the name of each run that is rewritten.

    Raises
    ------
    Damaged
        A run cannot be read. What was rewritten before stays so.
    StoreDown
        The store does not answer.
    """
    policy, rewritten = Policy(run_rows=run_rows), 0
    table.refresh()
    while runs := _found(table):
        for run in runs:
            show(run[0].name.run)
            level = run[0].name.level + 1
            try:
                parts = merge(table, [run], level, policy, Report(), _ignore, table.rights)
            except NotFound:  # a compactor was faster: what it wrote is found next
                continue
            table.listing.include(parts)
            rewritten += 1
        table.refresh()
    collector = GarbageCollector(table, table.objects.now() + LATER, timedelta())
    for key in chain(collector.unreadable(), (part.key for part in collector.unneeded())):
        table.objects.delete(key)
    return rewritten


def withheld_objects(objects: Objects, rights: Rights) -> Iterator[ObjectInfo]:
    """The packs and raw copies of programmes that are not stored. Raises `StoreDown`."""
    for prefix in (*(f"{name}/" for name in PACK_SPECS), PREFIX):
        yield from (info for info in objects.list(prefix) if not rights.holds(info.key))


def _found(table: Table) -> list[Run]:
    for _ in range(3):
        try:
            return withheld_runs(table)
        except NotFound:
            table.refresh()
    return withheld_runs(table)


def _withheld(table: Table, part: RunInfo) -> bool:
    """Whether a part has rows of what is not stored, by the column that tells."""
    objects, names = table.objects, table.spec.schema.names
    column = "survey" if table.rights.without else next(name for name in COLUMNS if name in names)
    if column not in footer_of(objects, part.object).schema.names:
        return False  # written before the table had the column
    for values in read_column(objects, part.object, column):
        rows = pa.table({column: values, "alert_id": pa.nulls(len(values), pa.int64())})
        if table.rights.rows(rows).num_rows < rows.num_rows:
            return True
    return False


def _ignore(_: Report) -> None:
    pass
