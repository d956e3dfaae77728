"""The listing of a table: its parts as of the last refresh, and what of them is to be read."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol, TypeVar

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.store.objects.object_store import ObjectInfo, find, gives_others, read_twice
from stampede.store.offsets.coverage import LastUnion
from stampede.store.runs.footer import RunIndex
from stampede.store.runs.quarantine import Fault, Quarantine
from stampede.store.runs.reader import RunReader
from stampede.store.runs.run import RunInfo
from stampede.store.runs.run_name import RunName, prefix
from stampede.store.tables.checkpoint import Checkpoint
from stampede.store.tables.checkpoint_files import newest_checkpoint
from stampede.store.tables.view import LOST, TableView

# How often a listing starts again because runs were deleted meanwhile.
_TRIES = 5
VANISHED = "a run is gone, and no other run holds its offsets"
OMITTED = "a listing leaves it out, and may leave out others"
MOST_UNREADABLE = 8
"""Most footers that the store may fail to give, while it gives others; if more, it is down."""
MISSING_AFTER = timedelta(minutes=15)
"""Time from the newest part of a run until a missing part is reported: a replica copies a run
part by part. That answers may lack its rows is said at once."""

A = TypeVar("A")
B = TypeVar("B")


class Map(Protocol):
    """`Table.map`."""

    def __call__(self, function: Callable[[A], B], items: Sequence[A], /) -> list[B]:
        """`function` of each item."""


class Listing:
    """The parts of a table. Safe to share between threads.

    Parameters
    ----------
    believe
        See `Table`.

    Attributes
    ----------
    faults_found
        Number of faults added since the table was made.
    checkpoint
        That which the first refresh read; None if there was none.
    omitted
        Parts that the latest listing left out, by key with the reason; they are read. It may have
        left out parts that this process does not know: any lookup may lack rows.
    """

    def __init__(self, reader: RunReader, map_items: Map, believe: bool = True) -> None:
        self._reader, self._map, self._believe = reader, map_items, believe
        self._objects, self._spec = reader.objects, reader.spec
        self.quarantine = Quarantine(self._spec.name)
        self.faults_found = 0
        self.checkpoint: Checkpoint | None = None
        self._refreshing, self._choosing = threading.Lock(), threading.Lock()
        self._seen: dict[str, RunInfo] | None = None
        self._vanished: list[Fault] = []
        self.omitted: dict[str, str] = {}
        # Parts in quarantine as they were before: what is lost if somebody deletes them.
        self._hidden: dict[str, RunInfo] = {}
        self._view: TableView | None = None
        self._union = LastUnion()

    @property
    def listed(self) -> bool:
        """Whether there was a refresh."""
        return self._view is not None

    def view(self) -> TableView:
        """What to read. Raises `StoreDown`, if there was no refresh yet."""
        while self._view is None:
            self.refresh()
        return self._view

    def parts(self) -> list[RunInfo]:
        """All parts that can be read, live or not, by key. Raises `StoreDown`."""
        self.view()
        return self._readable()

    def remembered(self) -> list[RunInfo]:
        """What a checkpoint names: all parts whose footer is known, those that are left out too."""
        listed = {part.key for part in self.parts()}
        faults = [*self.quarantine.faults(), *self._vanished]
        # What was read of a part before it was damaged may be known nowhere else.
        # A new process must read its footer again, and find the damage: so with an etag of nothing.
        hidden = {
            key: replace(part, object=part.object._replace(etag=""))
            for key, part in self._hidden.items()
        }
        others = hidden | {fault.run.key: fault.run for fault in faults if fault.run}
        return [*self.parts(), *(part for key, part in others.items() if key not in listed)]

    def vanished(self) -> list[RunInfo]:
        """Parts that a checkpoint or an earlier listing shows, and whose offsets are lost now."""
        self.view()
        return [fault.run for fault in self._vanished if fault.run]

    def quarantined(self) -> Mapping[str, str]:
        """See `Table.quarantined`."""
        latest = datetime.now(UTC) - MISSING_AFTER
        lost = {
            key: LOST for key, newest in self.view().lost.items() if newest.object.modified < latest
        }
        vanished = {part.key: VANISHED for part in self.vanished()}
        return lost | vanished | dict(self.quarantine.reasons())

    def add(self, fault: Fault) -> None:
        """Leave out what a fault names."""
        self.faults_found += 1
        self.quarantine.add(fault)
        self._choose()

    def put_into_quarantine(
        self,
        part: RunInfo,
        reason: str,
        group: int | None = None,
        index: RunIndex | None = None,
    ) -> None:
        """Leave out a part that was found damaged, or one of its row groups.

        `index` says which keys the row group may have; without it, all those of the part.
        """
        ends = (part.first, part.last) if group is None or index is None else index.ends_of(group)
        self.add(Fault(part.object, reason, part, group, *ends))

    def include(self, parts: Sequence[RunInfo]) -> None:
        """Take parts for listed that were written or read back just now."""
        with self._refreshing:
            self.quarantine.forget({part.key for part in parts})
            seen = (self._seen or {}) | {part.key: part for part in parts}
            self._seen = {key: seen[key] for key in sorted(seen)}
            self._choose()

    def refresh(self) -> None:
        """List the runs; read footers that no refresh or checkpoint had. Raises `StoreDown`.

        What cannot be read or verified goes into quarantine. It is read again once it has changed.
        """
        with self._refreshing:
            believe = self._believe or self._seen is not None
            before = self._before()
            seen = {
                key: part for key, part in before.items() if believe and key not in self._hidden
            }
            for _ in range(_TRIES):
                listed = [
                    info
                    for info in self._objects.list(prefix(self._spec.name))
                    if info.key in before or self._is_part(info.key)
                ]
                self.quarantine.keep(listed)
                if not self._read_footers(listed, seen):
                    # A part was deleted since it was listed: the run it was merged into is there
                    # now. Keep the footers already read, so that each is read once even if other
                    # processes keep deleting.
                    continue
                view = TableView(self._spec, list(seen.values()), self.quarantine.faults())
                # Ask for each lost part by its name: the listing may have left it out.
                shown = seen.keys() | {info.key for info in listed}
                vanished = view.not_held(part for key, part in before.items() if key not in shown)
                keys = [*view.lost, *(part.key for part in vanished)]
                unlisted = [info for info in self._map(partial(find, self._objects), keys) if info]
                if unlisted and not self._read_footers(listed + unlisted, seen):
                    continue
                self._seen = {key: seen[key] for key in sorted(seen)}
                self.omitted = {part.key: OMITTED for part in vanished if part.key in seen}
                self._vanished = [
                    Fault(part.object, VANISHED, part, None, part.first, part.last)
                    for part in vanished
                    if part.key not in seen
                ]
                self._hidden = {
                    key: part for key, part in before.items() if key in shown and key not in seen
                }
                self._choose()
                return
        raise StoreDown(f"runs of {self._spec.name} vanish faster than they can be listed")

    def _is_part(self, key: str) -> bool:
        """Whether a key is that of a part of this table."""
        name = RunName.parse(key)
        return name is not None and name.key(self._spec.name) == key

    def _read_footers(self, listed: Sequence[ObjectInfo], seen: dict[str, RunInfo]) -> bool:
        """Make `seen` the parts in a listing that can be read; False if one of them is gone."""
        new = []
        for info in listed:
            if self.quarantine.holds(info.key):
                continue
            part = seen.get(info.key)
            if part and part.object[:3] == info[:3]:
                if part.object != info:
                    seen[info.key] = replace(part, object=info)
            else:
                new.append(info)
        read = self._map(self._footer, new)
        down = [error for error in read if isinstance(error, StoreDown)]
        # The store answers, but not for these objects: they are left out, unless it is down.
        failing = [info.key for info, found in zip(new, read, strict=True) if found in down]
        if len(down) > MOST_UNREADABLE or (down and not gives_others(self._objects, *failing)):
            raise down[0]
        for info, part_or_error in zip(new, read, strict=True):
            if isinstance(part_or_error, RunInfo):
                seen[info.key] = part_or_error
            elif part_or_error is not None:
                recheck = isinstance(part_or_error, StoreDown)
                self.quarantine.add(Fault(info, part_or_error.message, recheck=recheck))
        here = {info.key for info in listed if not self.quarantine.holds(info.key)}
        if None in read:
            return False
        for key in seen.keys() - here:
            del seen[key]
        return True

    def _before(self) -> dict[str, RunInfo]:
        """The parts known before a refresh: at first those of the newest checkpoint."""
        if self._seen is None:
            self.checkpoint = newest_checkpoint(self._objects, self._spec)
            return dict(self.checkpoint.parts) if self.checkpoint else {}
        vanished = {fault.object.key: fault.run for fault in self._vanished if fault.run}
        return vanished | self._hidden | self._seen

    def _choose(self) -> None:
        """Make the view of what was listed and is not in quarantine."""
        with self._choosing:  # so that the last view has the faults that all threads added
            faults = [*self.quarantine.faults(), *self._vanished]
            readable = self._readable()
            self._view = TableView(self._spec, readable, faults, self.omitted, self._union)

    def _readable(self) -> list[RunInfo]:
        return [part for part in (self._seen or {}).values() if not self.quarantine.holds(part.key)]

    def _footer(self, info: ObjectInfo) -> RunInfo | Damaged | StoreDown | None:
        """A part's footer; None if the part is gone, an error if it cannot be read twice."""
        try:
            return read_twice(lambda: self._reader.footer(info), Damaged, StoreDown)
        except NotFound:
            return None
        except (Damaged, StoreDown) as error:
            return error
