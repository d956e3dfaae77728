"""scrub, and `stampede audit --deep`: reads every object of the sites and checks every reference.

An etag shows what was written, not what a disk returns today. So each object is read to its end
and held to its name and its checksums; each pack to the rows that locate its images; and each row
of a table of locations to the pack that it names. Memory grows by 16 B a pack, no more.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
import structlog

from stampede.errors import Damaged, NotFound
from stampede.store.objects import ObjectInfo, Objects
from stampede.store.packs import night_of, read_pack
from stampede.store.runs import digest
from stampede.store.schema import ALL_TABLES, CUTOUT_PACKS, THUMBNAIL_PACKS, PackSpec
from stampede.store.tables import Table
from stampede.store.verification import foreign, verify

log = structlog.get_logger()

AT_ONCE = 4  # objects read at once; a pack is held in memory
_PACKS = {spec.prefix: spec for spec in (CUTOUT_PACKS, THUMBNAIL_PACKS)}


class Fault(NamedTuple):
    """An object that is not as it should be, at one site."""

    site: str
    key: str
    why: str


class Totals(NamedTuple):
    """What was read."""

    objects: int
    bytes: int
    foreign: int


class Scrub:
    """Reads one site.

    Parameters
    ----------
    site
        Its name in faults.
    expired
        Whether an object of that key is past its retention.
    report
        Called with each fault, in any thread.
    progress
        Called with the number of objects and bytes read so far.
    """

    def __init__(
        self,
        site: str,
        objects: Objects,
        expired: Callable[[str], bool],
        report: Callable[[Fault], None],
        progress: Callable[[int, int], None] = lambda objects, size: None,
    ) -> None:
        self._site, self._objects, self._expired = site, objects, expired
        self._report, self._progress = report, progress
        self._tables: Mapping[str, Table] = {}
        self._names, self._sizes = array("Q"), array("q")  # of the packs

    def run(self) -> Totals:
        """Read everything. Raises `StoreDown`."""
        self._tables = {name: Table(self._objects, spec) for name, spec in ALL_TABLES.items()}
        try:
            for table in self._tables.values():
                table.refresh()
            totals = self._read_all()
            for table in self._tables.values():
                self._check_rows(table)
                for key, why in table.quarantined().items():
                    self._fault(key, why)
            return totals
        finally:
            for table in self._tables.values():
                table.close()

    def _read_all(self) -> Totals:
        count: Counter[str] = Counter()
        infos = self._objects.list("")
        with ThreadPoolExecutor(AT_ONCE, "scrub") as pool:
            while group := list(islice(infos, 16 * AT_ONCE)):
                for info, known in zip(group, pool.map(self._read, group), strict=True):
                    count["foreign"] += not known
                    count["objects"] += 1
                    count["bytes"] += info.size
                    if known and night_of(info.key) is not None:
                        self._names.append(_number(info.key))
                        self._sizes.append(info.size)
                self._progress(count["objects"], count["bytes"])
        return Totals(count["objects"], count["bytes"], count["foreign"])

    def _read(self, info: ObjectInfo) -> bool:
        """Verify one object; False if it is none of the store's."""
        if foreign(info.key):
            log.warning("foreign object", site=self._site, key=info.key)
            return False
        try:
            if night_of(info.key) is None:
                verify(self._objects, info)
            else:
                self._read_pack(info, _PACKS[info.key.partition("/")[0]])
        except NotFound:  # merged or expired meanwhile
            pass
        except Damaged as error:
            self._fault(info.key, error.message)
        return True

    def _read_pack(self, info: ObjectInfo, spec: PackSpec) -> None:
        """Verify a pack, and hold the rows that point into it to its images."""
        data = self._objects.get(info.key)
        pack, _ = read_pack(data, spec, info.key)
        if pack.key != info.key:
            raise Damaged(f"{info.key} does not hold the pack of that name: that is {pack.key}")
        places = ["alert_id", "survey", *(["kind"] if spec is CUTOUT_PACKS else [])]
        table = self._tables[spec.locations.name]
        rows = table.lookup(pack.locations["alert_id"].unique().to_pylist())
        if not set(pack.locations["alert_id"].to_pylist()) <= set(rows["alert_id"].to_pylist()):
            raise Damaged(f"{info.key}: the table {spec.locations.name} lacks alerts of this pack")
        images = {tuple(row[name] for name in places): row for row in pack.locations.to_pylist()}
        for row in rows.filter(pc.equal(rows["pack"], info.key)).to_pylist():
            image = images.get(tuple(row[name] for name in places))
            where = [image and image[name] for name in ("offset", "length", "crc32")]
            if where[:2] != [row["offset"], row["length"]] or row["crc32"] not in (None, where[2]):
                raise Damaged(f"{info.key}: a row of {spec.locations.name} points to other bytes")

    def _check_rows(self, table: Table) -> None:
        """Find rows that point to packs that are not there, or beyond their end."""
        if "pack" not in table.spec.schema.names:
            return
        order = np.argsort(np.frombuffer(self._names or array("Q", [0]), np.uint64))
        names = np.frombuffer(self._names or array("Q", [0]), np.uint64)[order]
        sizes = np.frombuffer(self._sizes or array("q", [0]), np.int64)[order]
        lost: set[str] = set()
        for key, end in self._ends(table):
            number = np.uint64(_number(key))
            at = min(int(np.searchsorted(names, number)), len(names) - 1)
            if key in lost or (names[at] == number and end <= sizes[at]):
                continue
            if not self._expired(key):
                lost.add(key)
                there = names[at] == number
                self._fault(key, "rows point beyond its end" if there else "lost: rows point to it")

    def _ends(self, table: Table) -> Iterator[tuple[str, int]]:
        """For each row group the packs that it names, and where their last image in it ends."""
        for part in table.runs():
            try:
                file = table.reader.open(part)
                for group in file.numbers:
                    [rows] = file.read([group])
                    rows = rows.filter(pc.is_valid(rows["pack"])).select(
                        ["pack", "offset", "length"]
                    )
                    ends = pc.add(rows["offset"], rows["length"])
                    by_pack = rows.append_column("end", ends).group_by("pack")
                    found = by_pack.aggregate([("end", "max")])
                    yield from zip(
                        found["pack"].to_pylist(), found["end_max"].to_pylist(), strict=True
                    )
            except (NotFound, Damaged):  # merged meanwhile, or named already
                continue

    def _fault(self, key: str, why: str) -> None:
        log.error("damaged", site=self._site, key=key, why=why)
        self._report(Fault(self._site, key, why))


def _number(key: str) -> int:
    """64 bits of a digest of a key: of ten million packs, two share theirs once in 4e5 stores."""
    return int(digest(key)[:16], 16)
