"""Repairs what one site lost or has damaged from the other, both ways.

Packs come before the runs that point into them, as in every copy. What has no verified copy at
either site, or two that differ, is reported and left as it is.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.handlers.reconcile.findings import Findings
from stampede.runtime.bounded_pool import run_all
from stampede.store.compaction.raw_merge import RawMerger
from stampede.store.integrity.orphans import Orphans, Verdict
from stampede.store.integrity.verification import unreadable
from stampede.store.objects.object_store import ObjectInfo, Objects, find, gives_others
from stampede.store.packs.pack_name import night_of
from stampede.store.packs.raw_alerts import PREFIX
from stampede.store.programmes.rights import EVERYTHING, Rights
from stampede.store.replication.copy import Copier
from stampede.store.replication.site_differences import (
    Difference,
    Good,
    Listing,
    LostAtFirst,
    differences,
    good_copy,
    run_order,
    whole,
)
from stampede.store.replication.site_local import of_one_site
from stampede.store.runs.schema import ALL_TABLES
from stampede.store.tables.table import Table

ORPHANED = "orphaned"
"""The kind of a finding: an orphan of the second site that the first site has deleted."""


CONCURRENCY = 4
"""Objects that are repaired at a time. To verify a pack it is held in memory, as `scrub` does."""


class Repairer:
    """Repairs two sites.

    Parameters
    ----------
    expired
        Whether an object of that key is past its retention.
    follow
        The age at which an orphan that the first site has no longer is deleted at the second, too;
        None for never.
    rights
        Rows of other programmes are not lost if the first site has none of them.
    """

    def __init__(
        self,
        first: Objects,
        second: Objects,
        findings: Findings,
        repair: bool,
        expired: Callable[[str], bool],
        follow: timedelta | None = None,
        rights: Rights = EVERYTHING,
    ) -> None:
        self._rights = rights
        self._first, self._second = first, second
        self._findings, self._repair, self._expired = findings, repair, expired
        self._orphans = None if follow is None else Orphans(second, follow)
        self._at_first = None if follow is None else Orphans(first, follow)
        self._raw = None if follow is None else RawMerger(second, follow)
        self._seen: set[str] = set()  # one finding for each object
        self._to_first, self._to_second = Copier(second, first), Copier(first, second)

    def close(self) -> None:
        """Stop the threads."""
        self._to_first.close()
        self._to_second.close()
        for orphans in (self._orphans, self._at_first):
            if orphans:
                orphans.close()

    def repair(self, listing: Listing = whole) -> None:
        """Find what differs in two listings, or is in quarantine; repair it. Raises `StoreDown`.

        What only the first site has is not looked at: the step `replica` copies it.
        """
        for site in (self._first, self._second):
            for key in quarantined(site):
                self.repair_key(key)
        lost_at_first = LostAtFirst(self._first, self._second, self._expired, self._rights)
        runs: list[Difference] = []
        try:
            listed = differences(self._first, self._second, listing)
            wrong = self._wrong(listed, lost_at_first, runs)
            run_all(self._repair_or_delete, wrong, CONCURRENCY, "restore")
        finally:
            lost_at_first.close()
        run_all(self.repair_difference, runs, CONCURRENCY, "restore")

    def _wrong(
        self, listed: Iterable[Difference], lost_at_first: LostAtFirst, runs: list[Difference]
    ) -> Iterator[Difference]:
        """Those to repair now. Runs are added to `runs`, for later: they point into packs."""
        for difference in listed:
            if difference.second is None:
                continue
            if difference.first is None and not lost_at_first.lost(difference.second):
                continue
            if run_order(difference.key)[0]:
                runs.append(difference)
            else:
                yield difference

    def _repair_or_delete(self, difference: Difference) -> None:
        if difference.first is not None or not (
            self._delete_orphan(difference.key) or self._delete_merged(difference.second)
        ):
            self.repair_difference(difference)

    def repair_difference(self, difference: Difference) -> bool:
        """Verify both copies, and write the good one over the other; whether that repaired it."""
        key = difference.key
        if key in self._seen or of_one_site(key):
            return False
        self._seen.add(key)
        copier, lost = None, None in difference
        try:
            good = self._good_copy(difference)
            copier = {Good.FIRST: self._to_second, Good.SECOND: self._to_first}.get(good)
            if copier and self._repair:
                self._findings.add_copy(copier.copy(key, replace=True).bytes)
        except NotFound:  # deleted meanwhile
            return True
        except Damaged:
            copier = None
        except StoreDown:
            # Not even a good copy can be written there. The other objects must not wait for it.
            if not (gives_others(self._first, key) and gives_others(self._second, key)):
                raise
            copier = None
        kind = "lost" if lost and (copier or difference[1:] == (None, None)) else "damaged"
        self._findings.add(kind, key, repaired=copier is not None)
        return copier is not None and self._repair

    def repair_key(self, key: str) -> bool:
        """As `repair_difference`, for an object that was found damaged or lost at a site."""
        first, second = (_find(site, key) for site in (self._first, self._second))
        return self.repair_difference(Difference(key, first, second))

    def _delete_orphan(self, key: str) -> bool:
        """Whether a pack of the second site is an orphan; then it is deleted there.

        Also if it is damaged there, and the first site, which has none, needs none.
        """
        if self._orphans is None or self._at_first is None or night_of(key) is None:
            return False
        verdict = self._orphans.examine(key)
        if verdict is Verdict.DAMAGED and self._orphans.unneeded(key, self._at_first):
            verdict = Verdict.ORPHAN
        if verdict is not Verdict.ORPHAN:
            return False
        if self._repair:
            self._second.delete(key)
        self._findings.add(ORPHANED, key)
        return True

    def _delete_merged(self, info: ObjectInfo | None) -> bool:
        """Whether the second site has the rows of raw alerts in a merged file: then delete them."""
        if self._raw is None or info is None or not info.key.startswith(PREFIX):
            return False
        folder = info.key.rpartition("/")[0] + "/"
        merged = self._raw.merged(list(self._second.list(f"{folder}merged")))
        if info.key not in merged.into:
            return False
        if not self._raw.proven(info, merged.into[info.key]):
            return False
        if self._repair:
            self._second.delete(info.key)
        self._findings.add(ORPHANED, info.key)
        return True

    def _good_copy(self, difference: Difference) -> Good:
        """As `good_copy`; a copy that a site cannot read, though it gives others, is not good."""
        try:
            return good_copy(self._first, self._second, difference)
        except StoreDown:
            key, first, second = difference
            if first and unreadable(self._first, key):
                first = None
            if second and unreadable(self._second, key):
                second = None
            return good_copy(self._first, self._second, Difference(key, first, second))


def _find(site: Objects, key: str) -> ObjectInfo | None:
    try:
        return find(site, key)
    except StoreDown:
        if not gives_others(site, key):
            raise
        return None


def quarantined(objects: Objects) -> dict[str, str]:
    """The objects that a site's tables leave out, or lack: key and reason. Raises `StoreDown`."""
    found: dict[str, str] = {}
    for spec in ALL_TABLES.values():
        table = Table(objects, spec, cache_bytes=0)
        try:
            table.refresh()
            found |= table.quarantined()
        finally:
            table.close()
    return found
