"""Merges packs of all kinds and raw alerts, in passes of `compact`.

What is merged is in the store alone. A saved state says when nothing was due: then nobody looks for
an hour.
"""

from datetime import datetime, timedelta
from functools import partial

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.handlers.merges.images import merge_images
from stampede.handlers.merges.packets import merge_packets
from stampede.handlers.merges.raw_alerts import merge_raw_alerts
from stampede.store.compaction import merge_state
from stampede.store.compaction.merge_state import MergeState
from stampede.store.objects.object_store import Objects
from stampede.store.packs.merged_inputs import new_memory
from stampede.store.runs.schema import CUTOUT_PACKS, THUMBNAIL_PACKS
from stampede.telemetry.logs import get_logger

log = get_logger()

IDLE = timedelta(hours=1)
"""How long no pass looks for anything after one in which nothing was due."""


class Merges:
    """Merges what is due in one store."""

    def __init__(self, settings: Settings, objects: Objects) -> None:
        self._settings, self._objects, known = settings, objects, new_memory()
        self._steps = {
            "packets": partial(merge_packets, settings, objects, known),
            "cutouts": partial(merge_images, settings, objects, CUTOUT_PACKS, known),
            "thumbnails": partial(merge_images, settings, objects, THUMBNAIL_PACKS, known),
            "raw alerts": partial(merge_raw_alerts, settings, objects, known),
        }
        self._idle_at: datetime | None = None

    def run(self) -> StampedeError | None:
        """Make one pass; the first error. Each kind is merged even if another one cannot be."""
        settings = self._settings
        # Without `orphan_days` nothing that was merged would be deleted.
        if not settings.merge_seconds or not settings.orphan_days:
            return None
        busy, failed = False, None
        try:
            if self._is_idle():
                return None
        except StampedeError as error:
            return error
        for name, step in self._steps.items():
            try:
                busy |= step()
            except StampedeError as error:
                log.error("merging failed", kind=name, outcome=error.name, why=error.message)
                failed = failed or error
        if not busy and not failed:
            try:
                self._idle_at = self._objects.now()
                merge_state.save(self._objects, MergeState(self._idle_at))
            except StampedeError as error:
                failed = error
        return failed

    def _is_idle(self) -> bool:
        """Whether nothing was due a short while ago. Raises `StoreDown`."""
        now = self._objects.now()
        if self._idle_at is None or now - self._idle_at >= IDLE:
            state = merge_state.load(self._objects)
            self._idle_at = state.at if state else None
        # A time in the future is of another clock.
        return self._idle_at is not None and timedelta(0) <= now - self._idle_at < IDLE
