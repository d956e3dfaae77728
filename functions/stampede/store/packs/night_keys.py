"""Lists a part of the keys: all outside the folders of nights, and the folders of some nights.

Nearly all keys are in such folders, ``packs/<night>/`` for example: 264,000 in a survey's good
night at two sites, in ten years 10^9. No pass that a timer starts can list them all.
"""

import heapq
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence

from stampede.store.objects.object_store import ObjectInfo, Objects, after_folder, find
from stampede.store.runs.schema import PackSpec

_FOLDER = re.compile(r"(?:packs|thumbnails|packets|alerts/[^/]+/[^/]+)/(-?\d+)/")
# What holds such folders: `packs/`, `alerts/<survey>/<schema>/` and what is above that.
_PARENT = re.compile(r"(?:packs|thumbnails|packets|alerts(?:/[^/]+){0,2})/")


def night_of_folder(folder: str) -> int | None:
    """The night of a folder of packs or raw alerts; None for any other."""
    found = _FOLDER.fullmatch(folder)
    return int(found[1]) if found else None


def packed_nights(objects: Objects, spec: PackSpec) -> list[int]:
    """The nights that have packs of a kind, ascending. Raises `StoreDown`.

    Takes a request for a thousand nights.
    """
    folders = objects.list_folder(f"{spec.prefix}/").folders
    return sorted({n for each in folders if (n := night_of_folder(each)) is not None})


def folder_of(key: str) -> str:
    """The folder of a night that an object is in; empty if it is in none."""
    found = _FOLDER.match(key)
    return found[0] if found else ""


def walk(objects: Objects) -> set[str]:
    """The folders of nights, all other folders (with slashes), and the objects in no folder.

    Together these hold every key. Takes a request for a thousand nights. Raises `StoreDown`.
    """
    entries, pending = set[str](), [""]
    while pending:
        found = objects.list_folder(pending.pop())
        entries.update(info.key for info in found.objects)
        for folder in found.folders:
            if _PARENT.fullmatch(folder):
                pending.append(folder)
            else:
                entries.add(folder)
    return entries


class NightFolders:
    """The keys of some sites, by folder, at one time.

    Parameters
    ----------
    entries
        What `walk` returned, of all sites together.

    Attributes
    ----------
    nights
        The folders of nights, in key order.
    listed
        The number of keys that were listed.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._entries = sorted(entries)
        self.nights = [entry for entry in self._entries if night_of_folder(entry) is not None]
        self.listed = len(self._entries)

    def fitting(self, sites: Sequence[Objects], folders: Sequence[str], most: int) -> int:
        """How many of these folders hold at most `most` keys at all sites: at least the first.

        `folders` are in key order. Lists no more keys than that.
        """
        wanted = frozenset(folders)
        listings = [self._of_nights(site, wanted) for site in sites]
        for number, info in enumerate(heapq.merge(*listings, key=lambda info: info.key)):
            if number == most:
                return max(1, bisect_left(folders, folder_of(info.key)))
        return len(folders)

    def list(
        self, site: Objects, chosen: Collection[str], prefix: str = ""
    ) -> Iterator[ObjectInfo]:
        """The objects of a site outside the folders of nights, and in the `chosen` ones.

        In key order; only those whose keys start with `prefix`. Raises `StoreDown`.
        """
        for first, last in _rows(self._entries, frozenset(chosen), others=True):
            if not first.startswith(prefix):
                continue
            if night_of_folder(first) is not None:
                yield from self._of_row(site, first, last)
            elif first.endswith("/"):
                yield from self._counted(site.list(first))
            elif info := find(site, first):
                yield info

    def _of_nights(self, site: Objects, chosen: Collection[str]) -> Iterator[ObjectInfo]:
        for first, last in _rows(self._entries, chosen, others=False):
            yield from self._of_row(site, first, last)

    def _of_row(self, site: Objects, first: str, last: str) -> Iterator[ObjectInfo]:
        """The objects in neighbouring folders: a request for a thousand keys, not for a folder."""
        end = after_folder(last)
        for info in self._counted(site.list(_parent(first), first)):
            if info.key >= end:
                return
            if folder_of(info.key):  # else it is new, and belongs to no night
                yield info

    def _counted(self, infos: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        for info in infos:
            self.listed += 1
            yield info


def _rows(
    entries: Iterable[str], chosen: Collection[str], others: bool
) -> Iterator[tuple[str, str]]:
    """The first and last of neighbouring chosen folders of nights; `others` one by one, if wanted.

    Neighbours have the same parent, and no other entry lies between them.
    """
    row: tuple[str, str] | None = None
    for entry in entries:
        if entry in chosen and row and _parent(row[1]) == _parent(entry):
            row = row[0], entry
            continue
        if row:
            yield row
        row = (entry, entry) if entry in chosen else None
        if others and night_of_folder(entry) is None:
            yield entry, entry
    if row:
        yield row


def _parent(folder: str) -> str:
    return folder[:-1].rpartition("/")[0] + "/"
