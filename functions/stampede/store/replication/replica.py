"""The second site: a copy of the first that is consistent at every moment, if not up to date.

A run is listed there only after the packs that its rows point into, so its coverage proves as much
as at the first site. Two ways of copying keep that order:

- one run alone: its rows name the packs it needs, which are copied first;
- all that is missing: list the runs, *then* the packs. A run is written after its packs, so that
  listing of packs should hold all that those runs need. Copy the packs, and then each run as above.

A run that is gone before it is copied was merged: its rows are in a run that will be copied too.
The inputs of a run that is complete at the second site are not copied any more.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.bounded_pool import run_all
from stampede.store.integrity.digests import same
from stampede.store.integrity.referenced_packs import FEW_PACKS
from stampede.store.integrity.verification import twice, unreadable
from stampede.store.integrity.verified_objects import read_column
from stampede.store.objects.object_store import ObjectInfo, Objects, find
from stampede.store.replication.copy import MAX_BYTES, Copied, Copier
from stampede.store.replication.site_differences import Listing, whole
from stampede.store.replication.site_local import of_one_site
from stampede.store.runs.run import RunInfo, complete, inputs_of
from stampede.store.runs.run_name import RunName
from stampede.store.runs.schema import ALL_TABLES
from stampede.store.tables.table import Table
from stampede.telemetry.logs import get_logger

log = get_logger()

Progress = Callable[[ObjectInfo, Copied], None]
Copy = Callable[[str], Copied]


class Replica:
    """Copies the objects of `source` to `target`. Safe to share between threads.

    Parameters
    ----------
    concurrency
        Concurrent copies in `catch_up`.
    expired
        Whether an object of that key is past its retention. Then it is not copied.
    most_bytes
        Bytes that all copies under way hold at most.
    """

    def __init__(
        self,
        source: Objects,
        target: Objects,
        concurrency: int,
        expired: Callable[[str], bool] = lambda key: False,
        most_bytes: int = MAX_BYTES,
    ) -> None:
        self.source, self.target = source, target
        self._concurrency = concurrency
        self._expired = expired
        self._copier = Copier(source, target, most_bytes)

    def close(self) -> None:
        """Stop the threads."""
        self._copier.close()

    def copy(self, key: str) -> Copied:
        """Copy one object, and before it the packs it points into.

        Does nothing if the object is gone, past its retention, or belongs to the first site alone.
        Raises `StoreDown`, `Damaged`.
        """
        return self._copy(key, self._copier.copy)

    def catch_up(
        self, progress: Progress = lambda info, copied: None, listing: Listing = whole
    ) -> None:
        """Copy all missing objects of a listing, and all missing runs with the packs they need.

        The order is safe to stop anywhere. An object that a site does not give, although it gives
        others, counts as damaged: the others must not wait for it.

        Raises `StoreDown`; and `Damaged` after all undamaged objects were copied.
        """
        # List the runs before the packs: see above.
        runs = self._listed_runs()
        damaged = self._copy_all(self.missing_objects(listing), self._copy_alone, progress)
        # A run that points into a damaged pack, or into one that the listing left out, would point
        # to nothing: `_copy` looks for the packs of each run by name.
        copy = partial(self._copy, copy_object=self._copy_alone)
        damaged += self._copy_all(self._missing_of(runs), copy, progress)
        if damaged:
            raise damaged[0]

    def missing(self, listing: Listing = whole) -> Iterator[ObjectInfo]:
        """The listed objects, and all runs, that the target needs and lacks. Raises `StoreDown`."""
        runs = self._listed_runs()
        yield from self.missing_objects(listing)
        yield from self._missing_of(runs)

    def missing_objects(self, listing: Listing = whole) -> Iterator[ObjectInfo]:
        """The missing objects other than runs, in key order: two listings read side by side.

        Objects that describe their own site are left out.
        """
        at_target_in_order = iter(listing(self.target))
        other = next(at_target_in_order, None)
        for info in listing(self.source):
            while other and other.key < info.key:
                other = next(at_target_in_order, None)
            at_target = other if other and other.key == info.key else None
            stays = of_one_site(info.key) or self._expired(info.key)
            if not (is_run(info.key) or stays or same(info, at_target)):
                yield info

    def _listed_runs(self) -> list[RunInfo]:
        runs = []
        for spec in ALL_TABLES.values():
            table = Table(self.source, spec, cache_bytes=0, threads=self._concurrency)
            runs += table.runs()
            table.close()
        return runs

    def _missing_of(self, runs: Iterable[RunInfo]) -> Iterator[ObjectInfo]:
        """Those of `runs` that the target lacks and still needs, in the order given."""
        at_target: dict[str, ObjectInfo] = {}
        superseded: set[tuple[str, str]] = set()
        for spec in ALL_TABLES.values():
            table = Table(self.target, spec, cache_bytes=0, threads=self._concurrency)
            parts = table.listed()
            table.close()
            at_target |= {part.key: part.object for part in parts}
            superseded |= {(spec.name, name) for name in inputs_of(complete(parts))}
        for run in runs:
            wanted = (table_of(run.key), run.name.run) not in superseded
            if wanted and not same(run.object, at_target.get(run.key)):
                yield run.object

    def _copy(self, key: str, copy_object: Copy) -> Copied:
        """As `copy`; `copy_object` copies one object and nothing it points into."""
        if self._expired(key) or of_one_site(key):
            return Copied(0, False)
        try:
            if is_run(key):
                info = self.source.head(key)
                if same(info, find(self.target, key)):  # and so are its packs
                    return Copied(info.size, False)
                needed = twice(self.source, key, lambda: packs_of(self.source, info))
                self._copy_packs(sorted(needed), key, copy_object)
            return copy_object(key)
        except NotFound:
            return Copied(0, False)

    def _copy_alone(self, key: str) -> Copied:
        """Copy one object. Raises `Damaged` too if a site fails at it but gives others."""
        try:
            return self._copier.copy(key)
        except StoreDown as error:
            # The target first: if it is away, nothing need be read at the source.
            if unreadable(self.target, key) or unreadable(self.source, key):
                raise Damaged(error.message) from error
            raise

    def _copy_packs(self, packs: list[str], run: str, copy_object: Copy) -> None:
        """Copy the packs of a run, several at a time.

        A merged run may need thousands, and most were copied before. A listing of the target that
        shows a pack proves that it is there; those that it does not show are asked for by name.
        """
        lacking = [pack for pack in packs if not self._expired(pack)]
        nights = Counter(pack.rpartition("/")[0] for pack in lacking)
        for night in sorted(night for night, count in nights.items() if count > FEW_PACKS):
            shown = {info.key for info in self.target.list(f"{night}/")}
            lacking = [pack for pack in lacking if pack not in shown]
        if len(lacking) <= FEW_PACKS:
            for pack in lacking:
                self._copy_pack(pack, run, copy_object)
            return
        run_all(
            lambda pack: self._copy_pack(pack, run, copy_object),
            lacking,
            self._concurrency,
            "packs",
        )

    def _copy_pack(self, pack: str, run: str, copy_object: Copy) -> None:
        try:
            copy_object(pack)
        except NotFound:
            if find(self.target, pack) is None and find(self.source, run):
                # An orphan that was deleted, or damage: `scrub` names packs that rows need.
                log.warning("a pack is at neither site", pack=pack, run=run)

    def _copy_all(
        self, infos: Iterator[ObjectInfo], copy: Copy, progress: Progress
    ) -> list[Damaged]:
        """Copy `concurrency` objects at a time; list no further ahead. Returns what was damaged."""
        damaged: list[Damaged] = []

        def copy_one(info: ObjectInfo) -> None:
            try:
                progress(info, copy(info.key))
            except NotFound:
                log.info("gone before it was copied", key=info.key)
            except Damaged as error:
                log.error("damaged", key=info.key)
                damaged.append(error)

        run_all(copy_one, infos, self._concurrency, "copy")
        return damaged


def is_run(key: str) -> bool:
    """Whether a key is that of a part of a run of a known table."""
    return table_of(key) in ALL_TABLES and RunName.parse(key) is not None


def table_of(key: str) -> str:
    """The name of the table in a run's key."""
    return key.removeprefix("tables/").partition("/")[0]


def packs_of(objects: Objects, info: ObjectInfo) -> set[str]:
    """The packs that the rows of a run point into. Raises `NotFound`, `Damaged`, `StoreDown`.

    Fetches only that column of each row group.
    """
    packs: set[str] = set()
    if "pack" in ALL_TABLES[table_of(info.key)].schema.names:
        for column in read_column(objects, info, "pack"):
            packs.update(pc.unique(column.drop_null()).to_pylist())
    return packs
