"""Which objects of a folder were merged: those that the footers of merged ones name."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from stampede.errors import Damaged, NotFound
from stampede.store.objects.lru_cache import Cache
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.packs.pack import inputs_in
from stampede.store.packs.pack_name import level_of
from stampede.store.parquet.checksums import parse_verified
from stampede.store.parquet.object_footer import footer_bytes

KEPT_DAYS = 1.0
"""Days that an object stays after it was merged: a second site may copy it as late as that."""
KNOWN_INPUTS = 1_000_000
"""Names that are kept: those of some large nights."""
LATE = timedelta(days=1)
"""Packs that were merged longer ago than they are kept, and this, are found by their rows."""


class Merged(NamedTuple):
    """The objects of a folder that were merged.

    Attributes
    ----------
    young
        The keys of those that stay for a while.
    old
        Those that may be deleted; the inputs of one object lie together.
    into
        The key of the object that each was merged into, by key.
    """

    young: frozenset[str]
    old: list[ObjectInfo]
    into: dict[str, str]

    @property
    def waiting(self) -> set[str]:
        """The keys of all."""
        return set(self.into)


def new_memory() -> Cache:
    """Remembers what the footers of merged objects say, which never changes."""
    return Cache(KNOWN_INPUTS)


class MergedInputs:
    """Finds what was merged in one store.

    Parameters
    ----------
    kept
        How long an object stays after it was merged.
    known
        Remembers the footers that were read; made by `new_memory`.
    """

    def __init__(self, objects: Objects, kept: timedelta, known: Cache | None = None) -> None:
        self._objects, self._kept = objects, kept
        self._known = new_memory() if known is None else known

    def of(self, objects: Sequence[ObjectInfo], lately: bool = False) -> Merged:
        """What was merged of the objects of some nights. Raises `StoreDown`.

        With `lately` by the merged objects alone that were written not much longer ago than what
        they were merged of is kept.
        """
        since = self._objects.now() - self._kept - LATE
        merged_at: dict[str, datetime] = {}
        into: dict[str, str] = {}
        for info in objects:
            if lately and info.modified < since:
                continue
            for key in self._inputs(info):
                if key not in into or info.modified > merged_at[key]:
                    merged_at[key], into[key] = info.modified, info.key
        before = self._objects.now() - self._kept
        old = [info for info in objects if info.key in into and merged_at[info.key] <= before]
        old.sort(key=lambda info: into[info.key])
        young = frozenset(key for key, at in merged_at.items() if at > before)
        return Merged(young, old, into)

    def _inputs(self, info: ObjectInfo) -> frozenset[str]:
        if not level_of(info.key):
            return frozenset()
        known: frozenset[str] | None = self._known.get((info.key,))
        if known is None:
            try:
                known = inputs_in(
                    info.key, parse_verified(info.key, footer_bytes(self._objects, info))
                )
            except (NotFound, Damaged):  # `scrub` names it
                return frozenset()
            self._known.put((info.key,), known, 1 + len(known))
        return known
