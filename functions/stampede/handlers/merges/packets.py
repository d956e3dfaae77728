"""Merges packs of packets by object: of settled nights, and of months."""

import random
import time
from collections.abc import Iterator
from typing import NamedTuple

from stampede.config.settings import Settings
from stampede.errors import Damaged
from stampede.handlers.merges.settled_nights import choose_nights, kept, stored_before, tell
from stampede.runtime.clock import mjd
from stampede.store.compaction.packet_merge import PacketMerger
from stampede.store.compaction.packet_plan import (
    Source,
    due_in_night,
    due_merges,
    window_nights,
    window_of,
)
from stampede.store.objects.lru_cache import Cache
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.packs.merged_inputs import MergedInputs
from stampede.store.packs.night_keys import packed_nights
from stampede.store.packs.retention import Retention
from stampede.store.runs.schema import PACKET_PACKS, PACKETS
from stampede.store.tables.table import Table
from stampede.telemetry.logs import get_logger

log = get_logger()

LATEST, EARLIER = 2, 1
"""Windows of nights that are looked at: the latest, and one earlier, drawn at random."""
WINDOWS = 1 / 16
"""The share of passes that look at windows of nights, which have many packs."""


class Due(NamedTuple):
    """A merge that is due, of the nights with these names."""

    what: str
    sources: list[Source]


def merge_packets(settings: Settings, objects: Objects, known: Cache) -> bool:
    """Merge what is due, for `merge_seconds`; whether anything was merged or deleted.

    `known` is a memory that passes share. Raises `StoreDown`, or the last `Damaged`.
    """
    if settings.packet_days == 0:
        return False
    deadline = time.monotonic() + settings.merge_seconds
    table = Table(objects, PACKETS)
    merger = PacketMerger(objects, table, kept(settings))
    failed: Damaged | None = None
    busy = refreshed = False
    try:
        for due in _due(settings, objects, MergedInputs(objects, kept(settings), known)):
            if not refreshed:
                table.refresh()
                refreshed = True
            begin = time.perf_counter()
            try:
                done = merger.merge(due.sources)
                busy |= tell("packets", due.what, done, begin)
            except Damaged as error:
                log.error("not merged", kind="packets", nights=due.what, why=error.message)
                failed = error
            if time.monotonic() >= deadline:
                break
    finally:
        merger.close()
        table.close()
    if failed:
        raise failed
    return busy


def _due(settings: Settings, objects: Objects, inputs: MergedInputs) -> Iterator[Due]:
    """The merges that are due, of one night or window of nights after the other."""
    before = stored_before(settings, objects)
    settled, retention = int(mjd(before)), Retention.of(settings)
    nights = packed_nights(objects, PACKET_PACKS)

    def packs(some: list[int]) -> list[ObjectInfo]:
        """The packs of nights, without those that were merged and are kept for a while."""
        found = [
            info
            for night in some
            for info in objects.list(f"{PACKET_PACKS.prefix}/{night}/")
            if not retention.expired(info.key)
        ]
        young = inputs.of(found, lately=True).young
        # An archive may bring alerts of old nights: they are merged when all of it is stored.
        return [info for info in found if info.key not in young and info.modified <= before]

    for night in choose_nights(nights, before):
        merges = due_in_night(packs([night]))
        random.shuffle(merges)  # several compactors share them
        yield from (Due(f"{night}", sources) for sources in merges)
    if random.random() >= WINDOWS:
        return
    length = window_nights(settings.packet_days)
    windows: dict[range, list[int]] = {}
    for night in reversed(nights):
        if night < settled:
            windows.setdefault(window_of(night, length), []).append(night)
    latest, earlier = list(windows)[:LATEST], list(windows)[LATEST:]
    for window in [*latest, *random.sample(earlier, min(EARLIER, len(earlier)))]:
        some = sorted(windows[window])
        merges = due_merges(packs(some), settled, length)
        random.shuffle(merges)
        yield from (Due(f"{some[0]} to {some[-1]}", sources) for sources in merges)
