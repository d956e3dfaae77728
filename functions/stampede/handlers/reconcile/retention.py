"""Retention: which packs are old enough to be deleted, by a clock that two machines agree on.

Nothing brings a deleted image back. So the age of a pack is counted by the clock of the store that
holds it, and only if this machine's clock does not contradict it.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from stampede.errors import ClockWrong
from stampede.runtime import clock
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.packs.night_keys import night_of_folder
from stampede.store.packs.pack import is_past
from stampede.store.packs.pack_name import night_of
from stampede.store.runs.schema import PackSpec
from stampede.telemetry import reconcile_metrics
from stampede.telemetry.logs import get_logger

MOST_DIFFERENCE = timedelta(minutes=10)
"""Far more than clocks that are set by the network differ; S3 itself refuses 15 minutes."""

log = get_logger()


def checked_time(site: Objects, name: str) -> datetime:
    """The time by the clock of a store, in UTC; `name` is that of the site in log and metrics.

    Raises `ClockWrong` if this machine's clock differs by more than `MOST_DIFFERENCE`, `StoreDown`.
    """
    here, there = clock.now(), site.now()
    reconcile_metrics.CLOCK_DIFFERENCE.labels(name).set((there - here).total_seconds())
    if abs(there - here) <= MOST_DIFFERENCE:
        return there
    message = (
        f"nothing is deleted by its age: it is {there:%Y-%m-%d %H:%M:%S} UTC by the clock of the "
        f"{name}, and {here:%Y-%m-%d %H:%M:%S} by this machine's"
    )
    log.error("clocks differ", site=name, store=there.isoformat(), here=here.isoformat())
    raise ClockWrong(message)


def nights_past(
    site: Objects, spec: PackSpec, days: int | None, now_mjd: float
) -> Iterator[list[ObjectInfo]]:
    """The packs of each night that ended more than `days` ago, the earliest night first.

    Only these nights are listed. Without `days` there are none. `now_mjd` is MJD TAI. Raises
    `StoreDown`.
    """
    if days is None:
        return
    folders = site.list_folder(f"{spec.prefix}/").folders
    nights = [
        (night, folder) for folder in folders if (night := night_of_folder(folder)) is not None
    ]
    for night, folder in sorted(nights):
        if not is_past(night, days, now_mjd):
            return
        packs = [info for info in site.list(folder) if night_of(info.key) is not None]
        if packs:  # else what is there is no pack
            yield packs
