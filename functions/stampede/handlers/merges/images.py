"""Merges packs of cutouts, and those of thumbnails, of settled nights."""

import random
import time

from stampede.config.settings import Settings
from stampede.errors import Damaged
from stampede.handlers.merges.settled_nights import choose_nights, kept, stored_before, tell
from stampede.store.compaction.image_merge import ImageMerger
from stampede.store.compaction.night_plan import due_merges
from stampede.store.compaction.packet_merge import Merge
from stampede.store.objects.lru_cache import Cache
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.packs.merged_inputs import MergedInputs
from stampede.store.packs.night_keys import packed_nights
from stampede.store.packs.pack_name import level_of
from stampede.store.packs.retention import Retention
from stampede.store.runs.schema import PackSpec
from stampede.store.tables.table import Table
from stampede.telemetry.logs import get_logger

log = get_logger()

LEAST_DAYS = 30
"""Packs that are kept for fewer days are not merged: they would soon go anyway."""


def merge_images(settings: Settings, objects: Objects, spec: PackSpec, known: Cache) -> bool:
    """Merge what is due of one kind, for `merge_seconds`; whether anything was merged or deleted.

    `known` is a memory that passes share. Raises `StoreDown`, or the last `Damaged`.
    """
    if settings.cutout_days is not None and settings.cutout_days < LEAST_DAYS:
        return False
    table = Table(objects, spec.locations)
    merger = ImageMerger(objects, spec, table, kept(settings))
    try:
        return _Pass(settings, spec, table, merger, known).run()
    finally:
        merger.close()
        table.close()


class _Pass:
    """One pass over the packs of a kind."""

    def __init__(
        self, settings: Settings, spec: PackSpec, table: Table, merger: ImageMerger, known: Cache
    ) -> None:
        self._spec, self._table, self._merger = spec, table, merger
        self._objects = table.objects
        self._inputs = MergedInputs(self._objects, kept(settings), known)
        self._retention = Retention.of(settings)
        self._before = stored_before(settings, self._objects)
        self._deadline = time.monotonic() + settings.merge_seconds
        self._refreshed = self._busy = False
        self._failed: Damaged | None = None

    def run(self) -> bool:
        """Whether anything was merged or deleted. Raises `StoreDown`, or the last `Damaged`."""
        for night in choose_nights(packed_nights(self._objects, self._spec), self._before):
            self._merge_night(night)
        if self._failed:
            raise self._failed
        return self._busy

    def _merge_night(self, night: int) -> None:
        packs = [
            info
            for info in self._objects.list(f"{self._spec.prefix}/{night}/")
            if not self._retention.expired(info.key)
            and (level_of(info.key) or info.modified <= self._before)
        ]
        merged = self._inputs.of(packs)
        waiting = merged.waiting - self._delete(night, merged.old)
        merges = due_merges(packs, waiting)
        random.shuffle(merges)  # several compactors share them
        for sources in merges:
            if self._is_late():
                return
            self._refresh()
            begin = time.perf_counter()
            try:
                done = self._merger.merge(sources)
                self._busy |= tell(self._spec.prefix, f"{night}", done, begin)
            except Damaged as error:
                log.error("not merged", kind=self._spec.prefix, night=night, why=error.message)
                self._failed = error

    def _delete(self, night: int, merged: list[ObjectInfo]) -> set[str]:
        """Delete packs that were merged; the keys of those that are to be merged again."""
        begin, deleted, again = time.perf_counter(), 0, set[str]()
        for info in merged:
            if self._is_late():
                break
            self._refresh()
            if self._merger.is_read(info):
                again.add(info.key)
            else:
                deleted += self._merger.delete(info)
        self._busy |= tell(self._spec.prefix, f"{night}", Merge(deleted=deleted), begin)
        return again

    def _is_late(self) -> bool:
        return time.monotonic() >= self._deadline

    def _refresh(self) -> None:
        """List the table, once there is something to do."""
        if not self._refreshed:
            self._table.refresh()
            self._refreshed = True
