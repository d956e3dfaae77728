"""What two sites do not have in common, and which of two copies is the one that was stored."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from stampede.errors import Damaged, NotFound
from stampede.store.compaction.deletion_proof import DeletionProof
from stampede.store.integrity import ledger
from stampede.store.integrity.acceptances.decision import is_decision
from stampede.store.integrity.dead_letter_offsets import (
    DEAD_LETTERS,
    DeadLetterOffsets,
    read_coverage,
)
from stampede.store.integrity.digests import same
from stampede.store.integrity.verification import sound, table_of
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack_name import night_of
from stampede.store.programmes.rights import EVERYTHING, Rights
from stampede.store.replication.site_local import of_one_site
from stampede.store.runs.run import Run, RunInfo, live
from stampede.store.runs.run_name import RunName
from stampede.store.runs.schema import ALL_TABLES
from stampede.store.tables.table import Table


class Difference(NamedTuple):
    """An object that is not the same at both sites; None where a site lacks it."""

    key: str
    first: ObjectInfo | None
    second: ObjectInfo | None


Listing = Callable[[Objects], Iterator[ObjectInfo]]
"""Lists the objects of a site that are to be looked at, in key order."""


def whole(site: Objects) -> Iterator[ObjectInfo]:
    """All objects of a site. Raises `StoreDown`."""
    return site.list("")


def differences(first: Objects, second: Objects, listing: Listing = whole) -> Iterator[Difference]:
    """The listed objects that differ, in key order: two listings read side by side.

    Objects that describe their own site are left out.
    """
    at_first, at_second = (
        (info for info in listing(site) if not of_one_site(info.key)) for site in (first, second)
    )
    other = next(at_second, None)
    for info in at_first:
        while other and other.key < info.key:
            yield Difference(other.key, None, other)
            other = next(at_second, None)
        if other is None or other.key != info.key:
            yield Difference(info.key, info, None)
            continue
        if not same(info, other):
            yield Difference(info.key, info, other)
        other = next(at_second, None)
    while other:
        yield Difference(other.key, None, other)
        other = next(at_second, None)


class Good(StrEnum):
    """Where an object reads as it was stored."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"
    NEITHER = "neither"


def good_copy(first: Objects, second: Objects, difference: Difference) -> Good:
    """Verify both copies of an object. Raises `NotFound`, `StoreDown`."""
    one = difference.first is not None and sound(first, difference.first)
    other = difference.second is not None and sound(second, difference.second)
    if one and other:
        return Good.BOTH
    return Good.FIRST if one else Good.SECOND if other else Good.NEITHER


class LostAtFirst:
    """Tells what the first site has lost from what it has deleted or merged, by the second site.

    Parameters
    ----------
    expired
        Whether an object of that key is past its retention.
    rights
        Rows of other programmes are not lost if the first site has none of them.
    """

    def __init__(
        self,
        first: Objects,
        second: Objects,
        expired: Callable[[str], bool],
        rights: Rights = EVERYTHING,
    ) -> None:
        self._first, self._second, self._expired, self._rights = first, second, expired, rights
        self._letters = DeadLetterOffsets(first)
        self._tables: dict[str, tuple[Table, Table]] = {}
        self._lost_runs: dict[str, LostRuns] = {}
        self._footers: dict[str, DeletionProof] = {}

    def lost(self, info: ObjectInfo) -> bool:
        """Whether an object, which only the second site has, was lost at the first."""
        key = info.key
        if key.startswith(("packs/", "thumbnails/", "packets/")):
            return night_of(key) is not None and not self._expired(key)
        if is_decision(key):  # nothing deletes one
            return True
        if key.startswith(DEAD_LETTERS):
            return self._letters_lost(info)
        spec = table_of(key)
        if spec:
            return self._run_lost(spec.name, info)
        return key.startswith(("alerts/", ledger.EXPECTED)) and not self._expired(key)

    def close(self) -> None:
        """Stop the threads."""
        for tables in self._tables.values():
            for table in tables:
                table.close()

    def _letters_lost(self, info: ObjectInfo) -> bool:
        """A letter is purged only when its alert is stored, or when it is accepted."""
        name = info.key.split("/")[1]
        if name not in ALL_TABLES:
            return False
        try:
            letters = read_coverage(self._second, info)
        except Damaged:
            return False
        first, _ = self._of(name)
        open_letters = letters - self._letters.of_table(name)
        if open_letters - first.coverage():
            return True
        # A checkpoint may say that they are stored: the footers decide.
        runs = [run for run in live(first.listed()) if _overlap(run[0].coverage, open_letters)]
        if name not in self._footers:
            self._footers[name] = DeletionProof(first)
        try:
            return bool(open_letters - self._footers[name].coverage(runs))
        except NotFound:  # merged since the listing: the next pass asks again
            return False

    def _run_lost(self, name: str, info: ObjectInfo) -> bool:
        """A run is deleted only when other runs hold its coverage and its rows."""
        first, second = self._of(name)
        part = next((part for part in second.listed() if part.key == info.key), None)
        if part is None:  # not readable there either
            return False
        if any(part.key == other.key for other in first.listed()):
            return False
        if name not in self._lost_runs:
            self._lost_runs[name] = LostRuns(first, second)
        return self._lost_runs[name].lost(part)

    def _of(self, name: str) -> tuple[Table, Table]:
        if name not in self._tables:
            spec = ALL_TABLES[name]
            first, second = Table(self._first, spec), Table(self._second, spec, rights=self._rights)
            self._tables[name] = first, second
        return self._tables[name]


def _overlap(one: Coverage, other: Coverage) -> bool:
    return one - other != one


class LostRuns:
    """Tells lost runs of one table from those that the first site has merged."""

    def __init__(self, first: Table, second: Table) -> None:
        self._first = first
        self._proof = DeletionProof(second, first)  # one for all questions: it remembers footers
        self._whole = self._list()

    def lost(self, part: RunInfo) -> bool:
        """Whether the first site does not hold what a part at the second site holds.

        A damaged part counts as lost: nobody can compare its rows. Raises `StoreDown`.
        """
        held = self._hold(part)
        if held is None and part.key not in self._proof.damaged:
            self._first.refresh()  # a run that holds it was merged since our listing
            self._whole = self._list()
            held = self._hold(part)
        return held is False or part.key in self._proof.damaged

    def _hold(self, part: RunInfo) -> bool | None:
        return self._proof.hold([part], self._whole, every_row=False)

    def _list(self) -> list[Run]:
        damaged = self._first.quarantined()
        runs = live(self._first.listed())
        return [run for run in runs if not any(part.key in damaged for part in run)]


def run_order(key: str) -> tuple[bool, str]:
    """Sorts runs after the packs that they point into."""
    return RunName.parse(key) is not None, key
