"""Deletes packs that readers no longer need: at the first site, at the end of a pass of `scrub`."""

import time
from collections.abc import Iterable
from datetime import timedelta

from stampede.config.settings import Settings
from stampede.store.integrity.orphans import Orphans
from stampede.store.objects.object_store import Objects, find
from stampede.telemetry import scrub_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()


def delete_orphans(
    settings: Settings, objects: Objects, keys: Iterable[str], seconds: float
) -> None:
    """Delete those of these packs that are proven orphans, and older than `orphan_days`.

    What is not done after `seconds` stays for the next round. Raises `StoreDown`.
    """
    if not settings.orphan_days:
        return
    deadline = time.monotonic() + seconds
    orphans = Orphans(objects, timedelta(days=settings.orphan_days))
    try:
        for key in sorted(keys):
            info = find(objects, key)
            if info and orphans.proven(key):
                objects.delete(key)
                scrub_metrics.SCRUB_ORPHANS.labels("store", "deleted").inc()
                scrub_metrics.SCRUB_ORPHAN_BYTES.labels("store", "deleted").inc(info.size)
                log.info("orphan deleted", key=key, bytes=info.size)
            if time.monotonic() >= deadline:
                break
    finally:
        orphans.close()
