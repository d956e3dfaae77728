"""Which packs exist that rows of tables name, and how long they are."""

from array import array
from collections import Counter, OrderedDict

import numpy as np

from stampede.errors import StoreDown
from stampede.store.objects.object_store import Objects, find
from stampede.store.runs.run_name import digest

FEW_PACKS = 16
"""Packs of a night that are asked for one by one. A run of level 0 has one pack."""
MOST_NIGHTS = 64
"""Listings that are kept: of a survey's night half a megabyte each. Rows lie in order of time."""


class NamedPacks:
    """Asks a store for packs by name: a few of a night one by one, more by listing that night.

    So it lists only nights that rows point into. A response may be as old as the listing of the
    night that it comes from.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._asked: Counter[str] = Counter()  # by folder
        self._last: tuple[str, int] = "", -1  # rows that lie together name one pack
        self._nights: OrderedDict[str, tuple[np.ndarray, np.ndarray]] = OrderedDict()

    def reach(self, key: str, end: int = 0) -> bool:
        """Whether a pack exists and has at least `end` bytes. Raises `StoreDown`."""
        if self._last[0] != key:
            self._last = key, self._size(key)
        return end <= self._last[1]

    def _size(self, key: str) -> int:
        """The size of a pack; -1 if there is none."""
        folder = key.rpartition("/")[0] + "/"
        if folder not in self._nights and self._asked[folder] < FEW_PACKS:
            self._asked[folder] += 1
            try:
                info = find(self._objects, key)
                return info.size if info else -1
            except StoreDown:  # perhaps of this pack alone: then its listing has it nevertheless
                pass
        names, sizes = self._listed(folder)
        number = np.uint64(_number(key))
        at = min(int(np.searchsorted(names, number)), len(names) - 1)
        return int(sizes[at]) if names[at] == number else -1

    def _listed(self, folder: str) -> tuple[np.ndarray, np.ndarray]:
        """The packs of a night, sorted by their numbers, and their sizes: 16 B each."""
        if folder in self._nights:
            self._nights.move_to_end(folder)
            return self._nights[folder]
        names, sizes = array("Q", [0]), array("q", [-1])
        for info in self._objects.list(folder):
            names.append(_number(info.key))
            sizes.append(info.size)
        order = np.argsort(np.frombuffer(names, np.uint64))
        found = np.frombuffer(names, np.uint64)[order], np.frombuffer(sizes, np.int64)[order]
        self._nights[folder] = found
        if len(self._nights) > MOST_NIGHTS:
            self._nights.popitem(last=False)
        return found


def _number(key: str) -> int:
    """64 bits of a digest of a key: of a night's packs, two share theirs once in 1e10 nights."""
    return int(digest(key)[:16], 16)
