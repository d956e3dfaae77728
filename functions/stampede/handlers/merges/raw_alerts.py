"""Merges raw alerts of settled nights, those of each version of a survey's schema alone."""

import random
import time
from collections.abc import Iterator
from datetime import datetime

from stampede.config.settings import Settings
from stampede.errors import Damaged
from stampede.handlers.merges.settled_nights import choose_nights, kept, stored_before, tell
from stampede.store.compaction.night_plan import due_merges
from stampede.store.compaction.packet_merge import Merge
from stampede.store.compaction.raw_merge import RawMerger
from stampede.store.objects.lru_cache import Cache
from stampede.store.objects.object_store import Objects
from stampede.store.packs.merged_inputs import Merged, MergedInputs
from stampede.store.packs.night_keys import night_of_folder
from stampede.store.packs.pack_name import level_of
from stampede.store.packs.raw_alerts import PREFIX
from stampede.store.programmes.rights import Rights
from stampede.telemetry.logs import get_logger

log = get_logger()

KIND = "alerts"


def merge_raw_alerts(settings: Settings, objects: Objects, known: Cache) -> bool:
    """Merge what is due, for `merge_seconds`; whether anything was merged or deleted.

    `known` is a memory that passes share. Raises `StoreDown`, or the last `Damaged`.
    """
    deadline = time.monotonic() + settings.merge_seconds
    merger, rights = RawMerger(objects, kept(settings)), Rights.of(settings)
    inputs = MergedInputs(objects, kept(settings), known)
    before, busy = stored_before(settings, objects), False
    failed: Damaged | None = None
    for folder in _folders(objects, before):
        files = [
            info
            for info in objects.list(folder)
            if rights.holds(info.key) and (level_of(info.key) or info.modified <= before)
        ]
        merged, begin = inputs.of(files), time.perf_counter()
        deleted, again = _delete(merger, merged, deadline)
        busy |= tell(KIND, folder, Merge(deleted=deleted), begin)
        merges = due_merges(files, merged.waiting - again)
        random.shuffle(merges)  # several compactors share them
        for sources in merges:
            if time.monotonic() >= deadline:
                break
            begin = time.perf_counter()
            try:
                busy |= tell(KIND, folder, merger.merge(sources), begin)
            except Damaged as error:
                log.error("not merged", kind=KIND, folder=folder, why=error.message)
                failed = error
    if failed:
        raise failed
    return busy


def _delete(merger: RawMerger, merged: Merged, deadline: float) -> tuple[int, set[str]]:
    """Delete files that were merged: how many, and the keys of those to be merged again."""
    deleted, again = 0, set[str]()
    for info in merged.old:
        if time.monotonic() >= deadline:
            break
        into = merged.into[info.key]
        if merger.delete(info, into):
            deleted += 1
        elif not merger.is_sound(into):
            again.add(info.key)
    return deleted, again


def _folders(objects: Objects, before: datetime) -> Iterator[str]:
    """The folders of the nights to look at, of each survey and version of its schema."""
    for survey in objects.list_folder(PREFIX).folders:
        for schema in objects.list_folder(survey).folders:
            nights = objects.list_folder(schema).folders
            found = sorted(n for each in nights if (n := night_of_folder(each)) is not None)
            yield from (f"{schema}{night}/" for night in choose_nights(found, before))
