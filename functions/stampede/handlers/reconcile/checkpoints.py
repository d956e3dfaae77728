"""The checkpoints of all tables of a site: kept, or rebuilt from the runs themselves."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import NamedTuple

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.store.objects.object_store import Objects
from stampede.store.runs.run import RunInfo
from stampede.store.runs.run_name import prefix
from stampede.store.runs.schema import ALL_TABLES, TableSpec
from stampede.store.tables.checkpoint import Checkpoint, is_checkpoint
from stampede.store.tables.checkpoint_files import (
    is_file_beside,
    listed_checkpoints,
    put_checkpoint,
    read_checkpoint,
    same_entry,
    with_files,
)
from stampede.store.tables.table import Table
from stampede.telemetry.logs import get_logger

log = get_logger()

Begin = Callable[[str, int], None]
"""Called with the name of a table and the number of its parts, before their footers are read."""


class Rebuilt(NamedTuple):
    """What a table's footers say, beside what its checkpoints said.

    Attributes
    ----------
    parts
        Number of parts whose footers were read.
    seconds
        How long that took, with the listing.
    before
        Key of the newest checkpoint that could be read; None if there was none.
    newer
        Number of parts that it does not name.
    wrong
        What is wrong with a checkpoint: its key and the reason, by the key of the part, or by its
        own if it is damaged. Or that a file beside it is damaged, by its key.
    unreadable
        Checkpoints and files beside them that the store does not give, though it gives others, and
        why. They stay.
    faults
        Parts that are damaged or lost: no checkpoint repairs them.
    written
        Key of the new checkpoint; None if none was needed or wanted.
    """

    table: str
    parts: int
    seconds: float
    before: str | None
    newer: int
    wrong: dict[str, str]
    unreadable: dict[str, str]
    faults: dict[str, str]
    written: str | None


def keep_checkpoints(objects: Objects, grace: timedelta) -> None:
    """Write the checkpoints of a site that are due, and delete old ones. Raises `StoreDown`."""
    for spec in ALL_TABLES.values():
        table = Table(objects, spec, cache_bytes=0)
        try:
            if written := table.keep_checkpoint(grace):
                log.info("checkpoint written", table=spec.name, key=written)
        finally:
            table.close()


def rebuild(
    objects: Objects, write: bool, begin: Begin = lambda table, parts: None
) -> Iterator[Rebuilt]:
    """Read the footers of every table as if there were no checkpoint, and compare the two.

    With `write` a table gets a new checkpoint if its newest one is not what this one would write,
    and the wrong ones are deleted. Raises `StoreDown`.
    """
    for spec in ALL_TABLES.values():
        begin(spec.name, sum(1 for _ in objects.list(prefix(spec.name))))
        table = Table(objects, spec, cache_bytes=0, believe=False)
        try:
            yield _rebuild(table, write)
        finally:
            table.close()


def _rebuild(table: Table, write: bool) -> Rebuilt:
    start = time.perf_counter()
    table.refresh()
    seconds = time.perf_counter() - start
    found = {part.key: part for part in table.listed()}
    sound, wrong, bad, unreadable, gone = _compared(table.objects, table.spec, found)
    newest = sound[-1] if sound else None
    named = newest.parts if newest else {}
    written, remembered = None, table.listing.remembered()
    if write:
        for key in sorted(filter(is_file_beside, bad)):  # before it is written again
            table.objects.delete(key)
        changed = (
            len(named) != len(remembered)
            or any(not same_entry(part, named.get(part.key)) for part in remembered)
            or gone
            or any(map(is_file_beside, wrong))
        )
        if changed:
            written = put_checkpoint(table.objects, table.spec, remembered, newest)
        for key in sorted(filter(is_checkpoint, bad - {written or ""})):
            table.objects.delete(key)
    return Rebuilt(
        table.spec.name,
        len(found),
        seconds,
        newest.key if newest else None,
        len(found.keys() - named.keys()),
        wrong,
        unreadable,
        dict(table.quarantined()),
        written,
    )


def _compared(
    objects: Objects, spec: TableSpec, found: dict[str, RunInfo]
) -> tuple[list[Checkpoint], dict[str, str], set[str], dict[str, str], bool]:
    """The checkpoints that can be read, what is wrong, what to delete, what the store withholds.

    And whether the newest of them names a file that is gone: that is not wrong, since footers have
    the same, but a new checkpoint is better.
    """
    sound: list[Checkpoint] = []
    wrong: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    bad: set[str] = set()
    gone = False
    listed = listed_checkpoints(objects, spec)
    for info in listed.checkpoints:
        try:
            checkpoint = read_checkpoint(objects, info.key, spec, listed.buckets)
        except NotFound:
            continue
        except StoreDown as error:  # at this object alone: otherwise the listing fails too
            unreadable[info.key] = error.message
            continue
        except Damaged as error:
            wrong[info.key] = error.message
            bad.add(info.key)
            continue
        parts, faults = with_files(objects, spec, checkpoint.parts)
        gone = any(isinstance(fault, NotFound) for fault in faults.values())
        for key, fault in faults.items():
            if isinstance(fault, StoreDown):
                unreadable[key] = fault.message
            elif isinstance(fault, Damaged):
                wrong[key] = fault.message
                bad.add(key)
        checkpoint = checkpoint._replace(parts=parts)
        sound.append(checkpoint)
        for key, entry in checkpoint.parts.items():
            part = found.get(key)
            if part and part.object[:3] == entry.object[:3] and not same_entry(part, entry):
                wrong[key] = f"{checkpoint.key} does not say what its footer says"
                bad.add(checkpoint.key)
    return sound, wrong, bad, unreadable, gone
