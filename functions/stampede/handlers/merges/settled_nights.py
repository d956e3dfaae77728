"""The nights whose objects a pass merges, and what the merges of all kinds share."""

import random
import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from stampede.config.settings import Settings
from stampede.runtime.clock import mjd
from stampede.store.compaction.packet_merge import Merge
from stampede.store.objects.object_store import Objects
from stampede.store.packs.merged_inputs import KEPT_DAYS
from stampede.telemetry import store_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

LATEST, EARLIER = 3, 1
"""Nights that a pass looks at: the latest that are settled, and one earlier, drawn at random."""


def stored_before(settings: Settings, objects: Objects) -> datetime:
    """What was stored by then is merged, if its night was over: an archive may bring old nights."""
    return objects.now() - timedelta(days=settings.merge_days)


def kept(settings: Settings) -> timedelta:
    """How long an object stays after it was merged."""
    return timedelta(days=min(KEPT_DAYS, settings.orphan_days))


def choose_nights(nights: Sequence[int], before: datetime) -> list[int]:
    """Some of these nights, which are ascending, that were over `before`; the latest first."""
    settled = [night for night in nights if night < int(mjd(before))]
    latest, earlier = settled[-LATEST:], settled[:-LATEST]
    return [*reversed(latest), *random.sample(earlier, min(EARLIER, len(earlier)))]


def tell(kind: str, nights: str, done: Merge, begin: float) -> bool:
    """Count and log a merge that began then (`time.perf_counter`); whether it did anything."""
    if not (done.merged or done.deleted):
        return False
    store_metrics.MERGED_BYTES.labels(kind, "read").inc(done.bytes_read)
    store_metrics.MERGED_BYTES.labels(kind, "written").inc(done.bytes_written)
    log.info(
        "merged",
        kind=kind,
        nights=nights,
        objects=done.merged,
        made=done.made,
        bytes_read=done.bytes_read,
        bytes_written=done.bytes_written,
        deleted=done.deleted,
        milliseconds=round(1000 * (time.perf_counter() - begin)),
    )
    return True
