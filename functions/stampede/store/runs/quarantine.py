"""Quarantine: objects named like a run that cannot be read or verified, or parts of them.

A table leaves them out, names them and serves the rest. An object is read again when it changes,
and every few minutes: the store may have repaired it, or the network was to blame.
"""

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from weakref import WeakSet

from stampede.store.objects.object_store import ObjectInfo
from stampede.store.runs.run import RunInfo
from stampede.telemetry import store_metrics
from stampede.telemetry.logs import get_logger

RECHECK_SECONDS = 600.0
"""Age at which an object in quarantine is read again, though its listing has not changed."""

log = get_logger()


@dataclass(frozen=True, eq=False)
class Fault:
    """An object in quarantine, or one row group of it.

    Attributes
    ----------
    object
        As listed when it was read.
    run
        What its footer says, if that could be read.
    group
        Number of the row group; None if the whole object is left out.
    first, last
        Leading keys that the missing rows may have; None is without bound.
    recheck
        Whether the next refresh reads it again: the store failed at this object alone.
    """

    object: ObjectInfo
    reason: str
    run: RunInfo | None = None
    group: int | None = None
    first: int | str | None = None
    last: int | str | None = None
    recheck: bool = False


class Quarantine:
    """The faults of one table. Safe to share between threads."""

    def __init__(self, table: str) -> None:
        self.table = table
        self._faults: dict[tuple[str, int | None], tuple[Fault, float]] = {}
        self._logged: set[tuple[str, int | None, str]] = set()
        self._lock = threading.Lock()
        with _ALL_LOCK:
            _ALL.add(self)

    def add(self, fault: Fault) -> None:
        """Leave out what a fault names. It is logged the first time."""
        name = fault.object.key, fault.group
        with self._lock:
            self._faults[name] = fault, time.monotonic()
            new = (*name, fault.object.etag) not in self._logged
            self._logged.add((*name, fault.object.etag))
        self._count()
        if new:
            where = {} if fault.group is None else {"row_group": fault.group}
            log.error(
                "object in quarantine",
                table=self.table,
                key=fault.object.key,
                why=fault.reason,
                **where,
            )

    def keep(self, listed: Iterable[ObjectInfo]) -> None:
        """Forget the faults of objects that are gone, have changed, or are to be read again."""
        infos = {info.key: info for info in listed}
        oldest = time.monotonic() - RECHECK_SECONDS
        with self._lock:
            self._faults = {
                name: (fault, found)
                for name, (fault, found) in self._faults.items()
                if infos.get(fault.object.key) == fault.object
                and found > oldest
                and not fault.recheck
            }
        self._count()

    def forget(self, keys: Collection[str]) -> None:
        """Forget the faults of objects that have been written again."""
        with self._lock:
            self._faults = {
                name: found for name, found in self._faults.items() if name[0] not in keys
            }
        self._count()

    def faults(self) -> list[Fault]:
        """All faults, by key."""
        with self._lock:
            faults = [fault for fault, _ in self._faults.values()]
        return sorted(faults, key=lambda fault: (fault.object.key, fault.group or 0))

    def holds(self, key: str, group: int | None = None) -> bool:
        """Whether an object, or a row group of it, is left out."""
        return bool(self._faults) and (key, group) in self._faults

    def reasons(self) -> Mapping[str, str]:
        """Why each object is in quarantine, by key."""
        return {fault.object.key: fault.reason for fault in self.faults()}

    def _count(self) -> None:
        """Set the metric: the objects that any table of that name in this process leaves out."""
        with _ALL_LOCK:
            quarantines = list(_ALL)
        keys = {
            key for one in quarantines if one.table == self.table for key, _ in list(one._faults)
        }
        store_metrics.QUARANTINED_OBJECTS.labels(self.table).set(len(keys))


# A process may have several `Table`s of one table: the metric counts an object once.
_ALL: "WeakSet[Quarantine]" = WeakSet()
_ALL_LOCK = threading.Lock()  # one thread may make a table while another counts
