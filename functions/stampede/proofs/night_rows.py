"""The rows of a night in all packs of packets that may have some."""

from collections.abc import Callable, Iterator

import pyarrow as pa

from stampede.errors import Damaged, NotFound
from stampede.proofs.pack_rows import read_rows
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.objects.object_store import ObjectInfo, Objects, read_twice
from stampede.store.packs.night_keys import packed_nights
from stampede.store.packs.pack_name import PackName
from stampede.store.runs.schema import PACKET_PACKS

WINDOW = 30
"""Nights whose packets a merged pack may have."""

Report = Callable[[int, int, int], None]
"""Called with a night, how many of its packs were read, and how many there are."""


def silent(night: int, read: int, packs: int) -> None:
    """Report nothing."""


class NightRows:
    """The rows of a night, as `pack_rows.read_rows` has them. Iterate only once.

    They are in the night's own packs, and in merged ones of the nights after it. It lists until a
    listing has no pack that is new: a merge meanwhile puts rows into a pack that a listing may
    have passed, then deletes the others. Raises `StoreDown`.

    Attributes
    ----------
    damaged
        Why a pack could not be read, by its key; complete at the end.
    """

    def __init__(self, objects: Objects, night: int, report: Report = silent) -> None:
        self._objects, self._night, self._report = objects, night, report
        self.damaged: dict[str, str] = {}

    def __iter__(self) -> Iterator[pa.Table]:
        done = set[str]()
        while new := [info for info in self._packs() if info.key not in done]:
            packs = len(done) + len(new)
            for info in new:
                done.add(info.key)
                self._report(self._night, len(done), packs)
                try:
                    rows = self._read(info)
                except NotFound:
                    continue
                except Damaged as error:
                    self.damaged[info.key] = error.message
                    continue
                yield rows.filter(pc.equal(rows["night"], self._night))

    def _read(self, info: ObjectInfo) -> pa.Table:
        return read_twice(lambda: read_rows(self._objects, info), Damaged, NotFound)

    def _packs(self) -> Iterator[ObjectInfo]:
        """The packs that may have rows of the night."""
        later = range(self._night, self._night + WINDOW)
        for folder in packed_nights(self._objects, PACKET_PACKS):
            if folder in later:
                for info in self._objects.list(f"{PACKET_PACKS.prefix}/{folder}/"):
                    name = PackName.parse(info.key)
                    if name and (folder == self._night or _may_hold(name, self._night)):
                        yield info


def _may_hold(name: PackName, night: int) -> bool:
    return name.merged is not None and name.merged.first <= night
