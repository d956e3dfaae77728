"""scrub, and `stampede audit --deep`: reads every object of the sites and checks every reference.

An etag shows what was written, not what a disk returns today. So each object is read to its end
and held to its name and its checksums; each pack to the rows that point into it; and each row
of a table of locations to the pack that it names. Memory does not grow with the store.
"""

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from stampede.config.settings import Settings
from stampede.errors import Damaged, NotFound, StoreDown
from stampede.handlers.scrub.dangling_rows import LOST, lost_packs
from stampede.handlers.thumbnails.check import STALE, stale
from stampede.store.integrity.orphans import all_agree, packs_instead
from stampede.store.integrity.referenced_packs import NamedPacks
from stampede.store.integrity.verification import SAMPLE, foreign, table_of, unreadable, verify
from stampede.store.objects.object_store import ObjectInfo, Objects, find, gives_others
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.kinds import read_named, spec_of
from stampede.store.packs.pack import Pack, read_rows
from stampede.store.packs.pack_name import night_of
from stampede.store.packs.retention import Retention
from stampede.store.runs.schema import ALL_TABLES, CUTOUT_PACKS, THUMBNAILS, PackSpec
from stampede.store.tables.table import Table
from stampede.telemetry.logs import get_logger

log = get_logger()

GROUP = 64  # objects listed at once
CONCURRENCY = 4  # objects read at once; a pack is held in memory


class Fault(NamedTuple):
    """An object that is not as it should be, at one site."""

    site: str
    key: str
    why: str


class Totals(NamedTuple):
    """What was read; of that objects that are none of the store's, and packs that are orphans."""

    objects: int = 0
    bytes: int = 0
    foreign: int = 0
    orphans: int = 0
    orphan_bytes: int = 0


@dataclass(frozen=True)
class Site:
    """A site to read, and what its objects are held to.

    Attributes
    ----------
    name
        Its name in faults.
    expired
        Whether an object of that key is past its retention.
    draw
        Whether to compare thumbnails with what the cutouts show.
    alone
        Whether there is no other site that lost or damaged thumbnails are restored from.
    grace
        How long the run of a pack may come after the pack.
    behind
        Whether a run may come however late: at the second site, where it is copied after its packs.
        Without a Broker that takes until a pass of `reconcile` comes to it.
    """

    name: str
    objects: Objects
    expired: Callable[[str], bool]
    draw: bool = False
    alone: bool = False
    grace: timedelta = timedelta()
    behind: bool = False

    @classmethod
    def of(cls, settings: Settings, name: str, objects: Objects, behind: bool = False) -> Self:
        """The site `store` or `replica`, as the settings describe it."""
        return cls(
            name,
            objects,
            Retention.of(settings).expired,
            draw=name == "store",  # the second site has copies of these thumbnails
            alone=not settings.replica,
            grace=timedelta(seconds=settings.grace_seconds),
            behind=behind,
        )


class Scrub:
    """Reads one site: `run`, or the others as a context manager.

    Parameters
    ----------
    report
        Called with each fault, in any thread.
    progress
        Called with the number of objects and bytes read so far.

    Attributes
    ----------
    orphans
        The packs found that readers do not need, by key, as far as rows and checksums tell.
    """

    def __init__(
        self,
        site: Site,
        report: Callable[[Fault], None],
        progress: Callable[[int, int], None] = lambda objects, size: None,
    ) -> None:
        self._site, self._objects = site, site.objects
        self._report, self._progress = report, progress
        self._tables: Mapping[str, Table] = {}
        self._listed: dict[str, datetime] = {}  # when each table was, by the store's clock
        self.orphans: dict[str, ObjectInfo] = {}

    def run(self) -> Totals:
        """Read everything. Raises `StoreDown`."""
        with self:
            return self.read_on("", math.inf)[0]

    def __enter__(self) -> Self:
        self._tables = {name: Table(self._objects, spec) for name, spec in ALL_TABLES.items()}
        for table in self._tables.values():
            self._refresh(table)
        return self

    def __exit__(self, *_: object) -> None:
        for table in self._tables.values():
            table.close()

    def read_on(self, after: str, deadline: float) -> tuple[Totals, str | None]:
        """Read the objects whose keys sort after `after`, at least a few, until the deadline.

        The deadline is one of `time.monotonic`. Returns what was read, and the last key; None
        instead of a key at the end. Raises `StoreDown`.
        """
        totals, last, parts = self._read_all(after, deadline)
        if parts:
            packs = NamedPacks(self._objects)
            for table in self._tables.values():
                for key, why in lost_packs(table, parts, packs, self._site.expired):
                    self._fault(key, why)
        for key, why in self._quarantined().items():
            self._fault(key, why)
        return totals, last

    def look_again(self, keys: Iterable[str], unneeded: Container[str] = ()) -> None:
        """Report which of these objects, found damaged or lost before, are so still.

        Those that are `unneeded` are no loss if they are gone.
        """
        left_out = self._quarantined()
        for key in sorted(keys):
            try:
                info = find(self._objects, key)
            except StoreDown as error:
                if not gives_others(self._objects, key):
                    raise
                self._fault(key, error.message)
                continue
            if info:
                self._read(info)
            elif night_of(key) is not None and not self._site.expired(key):
                if key not in unneeded:
                    self._fault(key, LOST)
            elif key in left_out:
                self._fault(key, left_out[key])

    def _quarantined(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for table in self._tables.values():
            found |= table.quarantined()
        return found

    def _read_all(self, after: str, deadline: float) -> tuple[Totals, str | None, set[str]]:
        """What was read, the last key or None at the end, and the parts of runs among it."""
        count: Counter[str] = Counter()
        parts = set[str]()
        infos = self._objects.list("", after)
        last: str | None = None
        with ThreadPoolExecutor(CONCURRENCY, "scrub") as pool:
            while group := list(islice(infos, GROUP)):
                for info, known in zip(group, pool.map(self._read, group), strict=True):
                    count["foreign"] += not known
                    count["objects"] += 1
                    count["bytes"] += info.size
                    if table_of(info.key):
                        parts.add(info.key)
                self._progress(count["objects"], count["bytes"])
                last = group[-1].key
                if time.monotonic() >= deadline and len(group) == GROUP:
                    break
            else:
                last = None
        wasted = sum(info.size for info in self.orphans.values())
        totals = Totals(**count, orphans=len(self.orphans), orphan_bytes=wasted)
        return totals, last, parts

    def _read(self, info: ObjectInfo) -> bool:
        """Verify one object; False if it is none of the store's."""
        if foreign(info.key):
            log.warning("foreign object", site=self._site.name, key=info.key)
            return False
        try:
            try:
                self._verify(info)
            except StoreDown as error:
                # A round must go on after an object that a disk can no longer read.
                if unreadable(self._objects, info.key):
                    raise Damaged(error.message) from error
                self._verify(info)
        except NotFound:  # merged or expired meanwhile
            pass
        except Damaged as error:
            self._fault(info.key, error.message)
        return True

    def _verify(self, info: ObjectInfo) -> None:
        if night_of(info.key) is None:
            verify(self._objects, info)
            return
        data, spec = self._objects.get(info.key), spec_of(info.key)
        known: list[pa.Table] = []
        pack, coverage = read_named(data, info.key, partial(self._claims, spec, known))
        if random.random() < SAMPLE:
            read_rows(data, info.key)
        try:
            self._compare_rows(info, spec, pack, coverage, known)
        except StoreDown as error:
            # The store gave the pack, so it is up. A run that it does not give is a fault of its
            # own; if the store has just gone down, the next object tells.
            log.warning("rows not compared", site=self._site.name, key=info.key, why=error.message)

    def _compare_rows(
        self,
        info: ObjectInfo,
        spec: PackSpec,
        pack: Pack,
        coverage: Coverage,
        known: list[pa.Table],
    ) -> None:
        """Hold the rows that point into a pack to its images; `known` are those, if looked up."""
        table, locations = self._tables[spec.locations.name], pack.locations
        rows = self._lookup(info, table, locations["alert_id"].unique().to_pylist(), known)
        if not all_agree(locations, rows.filter(pc.equal(rows["pack"], info.key)), spec):
            raise Damaged(f"{info.key}: a row of {spec.locations.name} points to other bytes")
        if self._site.expired(info.key):
            return
        if packs_instead(pack, spec, rows) and not coverage - table.coverage():
            self.orphans[info.key] = info
        thumbnails, site = self._tables[THUMBNAILS.name], self._site
        if spec is CUTOUT_PACKS and stale(pack, rows, thumbnails, site.draw, site.alone):
            self._fault(info.key, STALE)

    def _claims(self, spec: PackSpec, known: list[pa.Table], ids: list[int]) -> pa.Table | None:
        """The rows of the alerts of a pack, also put into `known`; None if they cannot be had."""
        try:
            known.append(self._tables[spec.locations.name].lookup(ids))
        except StoreDown:  # `_compare_rows` tells
            return None
        return known[0]

    def _lookup(
        self, info: ObjectInfo, table: Table, ids: list[Any], known: list[pa.Table]
    ) -> pa.Table:
        """The rows of the alerts of a pack. Raises `Damaged` if the table lacks any for too long.

        The run of a pack is written after it: the table may have been listed before that.
        """

        def lacking() -> bool:
            return not set(ids) <= set(rows["alert_id"].to_pylist())

        rows = known[0] if known else table.lookup(ids)
        if lacking() and info.modified >= self._listed[table.spec.name] - self._site.grace:
            self._refresh(table)
            rows = table.lookup(ids)
        if self._site.behind or not lacking():
            return rows
        if info.modified <= self._objects.now() - self._site.grace:
            raise Damaged(f"{info.key}: the table {table.spec.name} lacks alerts of this pack")
        return rows

    def _refresh(self, table: Table) -> None:
        now = self._objects.now()
        table.refresh()
        self._listed[table.spec.name] = now

    def _fault(self, key: str, why: str) -> None:
        log.error("damaged", site=self._site.name, key=key, why=why)
        self._report(Fault(self._site.name, key, why))
