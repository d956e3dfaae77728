"""Looks into packs: does a table have what they hold?"""

from collections.abc import Callable, Iterator
from itertools import islice

import pyarrow as pa

from stampede.errors import Damaged, NotFound
from stampede.store.coverage import Coverage
from stampede.store.ledger import coverage_of
from stampede.store.objects import ObjectInfo, Objects
from stampede.store.packs import read_pack, read_rows
from stampede.store.tables import CUTOUTS, Table, TableSpec

AT_ONCE = 256  # packs looked into before the next are listed
# What reading a pack raises that is none.
NO_PACK = (pa.ArrowException, OSError, KeyError, TypeError, ValueError)


class PackIndexCheck:
    """Which packs a table lacks; those found in order are remembered, and not looked into again.

    Parameters
    ----------
    damaged
        Called with the key of what should be a pack and is none.
    """

    def __init__(self, objects: Objects, spec: TableSpec, damaged: Callable[[str], None]) -> None:
        self._objects = objects
        self._spec = spec
        self._damaged = damaged
        self._good: set[str] = set()

    def lacking(self, packs: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        """Those of `packs` of whose alerts the table lacks any. Raises `StoreDown`.

        A sender that was told nothing sends again, and that may have come into another pack: a
        pack is judged by its alerts, not by whether a row points into it. What is remembered is
        what was among the last `packs`.
        """
        table = Table(self._objects, self._spec)
        table.refresh()
        covered, good = table.coverage(), set[str]()
        try:
            while some := list(islice(packs, AT_ONCE)):
                good.update(info.key for info in some)
                new = [info for info in some if info.key not in self._good]
                for info, held in zip(new, table.map(self._coverage, new), strict=True):
                    if held is None:
                        good.remove(info.key)
                    elif held - covered or (not held and self._unknown(table, info.key)):
                        good.remove(info.key)
                        yield info
            self._good = good
        finally:
            table.close()

    def _coverage(self, info: ObjectInfo) -> Coverage | None:
        """What a pack holds by its footer; None where it is gone, or no pack."""
        try:
            return coverage_of(self._objects, info)
        except NotFound:
            return None
        except NO_PACK:
            self._damaged(info.key)
            return None

    def _unknown(self, table: Table, key: str) -> bool:
        """Whether the table lacks any id of a pack: asked where its alerts came from no Kafka."""
        try:
            rows, _ = read_rows(self._objects.get(key))
        except NotFound:
            return False
        except NO_PACK:
            self._damaged(key)
            return False
        ids = rows["alert_id"].unique().to_pylist()
        return not set(ids) <= set(table.lookup(ids)["alert_id"].to_pylist())


def index(objects: Objects, key: str) -> None:
    """Write the run that `cutouts` would have written after a pack.

    Raises `Damaged`, `NotFound`, `StoreDown`.
    """
    try:
        pack, coverage = read_pack(objects.get(key))
    except NO_PACK as error:
        raise Damaged(f"{key} is no pack: {error}") from error
    if pack.key != key:
        raise Damaged(f"{key} does not read as it was stored")
    Table(objects, CUTOUTS, threads=1).append(pack.places, coverage)
