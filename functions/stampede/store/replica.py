"""The second site: a copy of the first that is right at every moment, if not always the newest.

What a reader there may rely on, at any moment: a run is there only after the packs that its rows
point into, so its coverage is as good a proof as at the first site. The order is kept in two ways:

- one run alone: its rows say which packs it needs, and these are copied first;
- all that is missing: the runs are listed, *then* the packs. A run was written after its packs,
  so that listing of packs has all that those runs need: they are copied, and then the runs.

A run that is gone when it is to be copied was merged: its rows are in a run that comes too. What
a complete run at the second site was merged from is not wanted there any more.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import structlog

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.store.copy import ROOM, Copied, Copier, find, same
from stampede.store.objects import ObjectInfo, Objects
from stampede.store.runs import RunInfo, RunName, prefix
from stampede.store.tables import DERIVED, TABLES, Table, complete

log = structlog.get_logger()

SPECS = TABLES | DERIVED

Progress = Callable[[str, Copied], None]


class Replica:
    """Brings what is at `source` to `target`. Safe to share between threads.

    Parameters
    ----------
    at_once
        Copies under way in `catch_up`.
    expired
        Whether an object of that key is past its retention: it is not copied.
    most_bytes
        Bytes that all copies under way hold at most.
    """

    def __init__(
        self,
        source: Objects,
        target: Objects,
        at_once: int,
        expired: Callable[[str], bool] = lambda key: False,
        most_bytes: int = ROOM,
    ) -> None:
        self.source, self.target = source, target
        self._at_once = at_once
        self._expired = expired
        self._copier = Copier(source, target, most_bytes)

    def close(self) -> None:
        """Stop the threads."""
        self._copier.close()

    def bring(self, key: str) -> Copied:
        """Have one object at the target, and before it what it points to.

        An object that is gone or past its retention is none to be brought. Raises `StoreDown`,
        `Damaged`.
        """
        if self._expired(key):
            return Copied(0, False)
        try:
            if is_run(key):
                info = self.source.head(key)
                if same(info, find(self.target, key)):  # and so are its packs
                    return Copied(info.size, False)
                for pack in packs_of(self.source, info):
                    self._bring_pack(pack, key)
            return self._copier.copy(key)
        except NotFound:
            return Copied(0, False)

    def catch_up(self, progress: Progress = lambda key, copied: None) -> None:
        """Bring everything that is missing, in an order that is safe to stop anywhere.

        Raises `StoreDown`; and `Damaged` when all that is sound was brought.
        """
        # The runs before the packs: see above.
        runs = self._listed_runs()
        damaged = self._bring_all(self.missing_objects(), self._copier.copy, progress)
        # A run that points into a damaged pack does not come: it would point to nothing.
        copy = self.bring if damaged else self._copier.copy
        damaged += self._bring_all(self._missing_of(runs), copy, progress)
        if damaged:
            raise damaged[0]

    def missing(self) -> Iterator[ObjectInfo]:
        """All that is at the source, wanted at the target, and not there. Raises `StoreDown`."""
        runs = self._listed_runs()
        yield from self.missing_objects()
        yield from self._missing_of(runs)

    def missing_objects(self) -> Iterator[ObjectInfo]:
        """Of what is no run, in key order, what is missing: two listings read side by side."""
        there = iter(self.target.list(""))
        other = next(there, None)
        for info in self.source.list(""):
            while other and other.key < info.key:
                other = next(there, None)
            at_target = other if other and other.key == info.key else None
            if not (is_run(info.key) or self._expired(info.key) or same(info, at_target)):
                yield info

    def _listed_runs(self) -> list[RunInfo]:
        runs = []
        for spec in SPECS.values():
            table = Table(self.source, spec, cache_bytes=0, threads=self._at_once)
            runs += table.runs()
            table.close()
        return runs

    def _missing_of(self, runs: Iterable[RunInfo]) -> Iterator[ObjectInfo]:
        """The runs among `runs`, older ones first, that the target lacks and still needs."""
        there: dict[str, ObjectInfo] = {}
        superseded: set[tuple[str, str]] = set()
        for spec in SPECS.values():
            table = Table(self.target, spec, cache_bytes=0, threads=self._at_once)
            parts = table.listed()
            table.close()
            there |= {part.key: part.object for part in parts}
            superseded |= {(spec.name, name) for run in complete(parts) for name in run[0].inputs}
        for run in runs:
            wanted = (table_of(run.key), run.name.run) not in superseded
            if wanted and not same(run.object, there.get(run.key)):
                yield run.object

    def _bring_pack(self, pack: str, run: str) -> None:
        try:
            if not self._expired(pack):
                self._copier.copy(pack)
        except NotFound:
            if find(self.target, pack) is None and find(self.source, run):
                log.error("a pack is at neither site", pack=pack, run=run)

    def _bring_all(
        self, infos: Iterator[ObjectInfo], copy: Callable[[str], Copied], progress: Progress
    ) -> list[Damaged]:
        """Copy a few at a time; no more is listed ahead than is under way."""
        damaged: list[Damaged] = []

        def one(info: ObjectInfo) -> None:
            try:
                progress(info.key, copy(info.key))
            except NotFound:
                log.info("gone before it was copied", key=info.key)
            except Damaged as error:
                log.error("damaged", key=info.key)
                damaged.append(error)

        with ThreadPoolExecutor(self._at_once, "copy") as pool:
            under_way: set[Future[None]] = set()
            try:
                for info in infos:
                    under_way.add(pool.submit(one, info))
                    if len(under_way) >= self._at_once:
                        done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                        for future in done:
                            future.result()
                for future in under_way:
                    future.result()
            finally:
                pool.shutdown(cancel_futures=True)
        return damaged


def unneeded(source: Objects, target: Objects, now: datetime, grace: timedelta) -> Iterator[str]:
    """The runs that the target needs no more, by the keys of their parts, lowest level first.

    Inputs of a run that has been complete there for `grace`; and, after the grace, parts of a run
    that is not complete there and of which the source has nothing any more, so never will be.
    (`compaction.sweep` knows that a half-written run's missing inputs went for its own sake or
    another's; here they may never have come.)
    """
    for spec in SPECS.values():
        table = Table(target, spec, cache_bytes=0)
        parts = table.listed()
        table.close()
        whole = complete(parts)
        finished = {run[0].name.run for run in whole}
        settled = {
            name
            for run in whole
            if all(now - part.object.modified >= grace for part in run)
            for name in run[0].inputs
        }
        for part in parts:
            name = part.name.run
            if name in settled or (
                name not in finished
                and now - part.object.modified >= grace
                and next(source.list(prefix(spec.name) + name), None) is None
            ):
                yield part.key


def is_run(key: str) -> bool:
    """Whether a key is that of a part of a run."""
    return table_of(key) in SPECS and RunName.parse(key) is not None


def table_of(key: str) -> str:
    """Name of the table that a run's key says."""
    return key.removeprefix("tables/").partition("/")[0]


def packs_of(objects: Objects, info: ObjectInfo) -> set[str]:
    """The packs that the rows of a run point into. Raises `NotFound`, `Damaged`, `StoreDown`.

    Of each row group only that column is fetched.
    """
    packs: set[str] = set()
    try:
        file = pq.ParquetFile(_Ranged(objects, info), pre_buffer=False)
        if "pack" in file.schema_arrow.names:
            for group in range(file.num_row_groups):
                column = file.read_row_group(group, columns=["pack"], use_threads=False)["pack"]
                packs.update(pc.unique(column.drop_null()).to_pylist())
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"{info.key} is no run: {error}") from error
    return packs


class _Ranged:
    """An object as a file to read from, a request for each read."""

    closed = False

    def __init__(self, objects: Objects, info: ObjectInfo) -> None:
        self._objects, self._info, self._at = objects, info, 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._info.size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, length: int) -> bytes:
        data = self._objects.get(self._info.key, self._at, length)
        if len(data) != min(length, self._info.size - self._at):
            raise StoreDown(f"{self._info.key} is shorter than it was listed")
        self._at += length
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        pass
