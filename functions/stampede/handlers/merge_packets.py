"""Merges packs of packets by object, in each pass of `compact`: of settled nights, and of months.

It keeps no state. A pass looks at the latest nights, and at some of the earlier ones in turn.
"""

import random
import time
from collections.abc import Iterator
from datetime import timedelta

from stampede.config.settings import Settings
from stampede.errors import Damaged
from stampede.runtime.clock import mjd
from stampede.store.compaction.packet_merge import PacketMerger
from stampede.store.compaction.packet_plan import Source, due_merges, window_nights, window_of
from stampede.store.objects.object_store import Objects
from stampede.store.packs.night_keys import packed_nights
from stampede.store.packs.retention import Retention
from stampede.store.runs.schema import PACKET_PACKS, PACKETS
from stampede.store.tables.table import Table
from stampede.telemetry import store_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

LATEST, EARLIER = 2, 1
"""Windows of nights that a pass looks at: the latest, and one earlier, drawn at random."""
KEPT_DAYS = 1.0
"""Days that a pack stays after it was merged: a second site may copy its run as late as that."""


def merge_packets(settings: Settings, objects: Objects) -> None:
    """Merge what is due, for `merge_seconds`. Raises `StoreDown`, or the last `Damaged`."""
    if not settings.merge_seconds or settings.packet_days == 0 or not settings.orphan_days:
        return
    deadline = time.monotonic() + settings.merge_seconds
    table = Table(objects, PACKETS)
    merger = PacketMerger(objects, table, timedelta(days=min(KEPT_DAYS, settings.orphan_days)))
    failed: Damaged | None = None
    try:
        table.refresh()
        for sources in _due(settings, objects):
            try:
                _merge(merger, sources)
            except Damaged as error:
                log.error("packets not merged", why=error.message)
                failed = error
            if time.monotonic() >= deadline:
                break
    finally:
        merger.close()
        table.close()
    if failed:
        raise failed


def _due(settings: Settings, objects: Objects) -> Iterator[list[Source]]:
    """The merges that are due, of one window of nights after the other."""
    retention, length = Retention.of(settings), window_nights(settings.packet_days)
    before = objects.now() - timedelta(days=settings.merge_days)
    settled = int(mjd(before))
    windows: dict[range, list[int]] = {}
    for night in reversed(packed_nights(objects, PACKET_PACKS)):
        if night < settled:
            windows.setdefault(window_of(night, length), []).append(night)
    latest, earlier = list(windows)[:LATEST], list(windows)[LATEST:]
    for window in [*latest, *random.sample(earlier, min(EARLIER, len(earlier)))]:
        packs = [
            info
            for night in sorted(windows[window])
            for info in objects.list(f"{PACKET_PACKS.prefix}/{night}/")
            # An archive may bring alerts of old nights: they are merged when all of it is stored.
            if info.modified <= before and not retention.expired(info.key)
        ]
        yield from due_merges(packs, settled, length)


def _merge(merger: PacketMerger, sources: list[Source]) -> None:
    begin = time.perf_counter()
    done = merger.merge(sources)
    store_metrics.MERGED_PACKET_BYTES.labels("read").inc(done.bytes_read)
    store_metrics.MERGED_PACKET_BYTES.labels("written").inc(done.bytes_written)
    if done.merged or done.deleted:
        log.info(
            "packets merged",
            nights=f"{min(each.name.first for each in sources)} to "
            f"{max(each.name.night for each in sources)}",
            packs=done.merged,
            made=done.made,
            bytes_read=done.bytes_read,
            bytes_written=done.bytes_written,
            deleted=done.deleted,
            milliseconds=round(1000 * (time.perf_counter() - begin)),
        )
