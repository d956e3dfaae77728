"""Finds packs whose alerts a table lacks, and indexes them again."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from stampede.errors import Damaged, NotFound
from stampede.store.integrity.dead_letter_offsets import read_coverage
from stampede.store.integrity.verification import twice
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.kinds import read_named, spec_of
from stampede.store.packs.pack import read_rows
from stampede.store.runs.schema import TableSpec
from stampede.store.tables.table import Table

PACK_BATCH = 256  # packs checked before the next are listed


class PackIndexCheck:
    """Finds the packs whose alerts a table lacks.

    A pack once found complete is not checked again.
    """

    def __init__(self, objects: Objects, spec: TableSpec) -> None:
        self._objects = objects
        self._spec = spec
        self._good: set[str] = set()

    def lacking(
        self, packs: Iterator[ObjectInfo], damaged: Callable[[str], None]
    ) -> Iterator[ObjectInfo]:
        """Those of `packs` that hold alerts which the table lacks. Raises `StoreDown`.

        An unacknowledged event is resent and may land in another pack, so compare alerts, not pack
        names. Only packs among the last `packs` are remembered.

        `damaged` is called with the key of an object that should be a pack but cannot be read as
        one, or which the store does not give although it gives others.
        """
        table = Table(self._objects, self._spec)
        table.refresh()
        covered, good = table.coverage(), set[str]()
        coverage = partial(self._coverage, damaged=damaged)
        try:
            while group := list(islice(packs, PACK_BATCH)):
                good.update(info.key for info in group)
                new = [info for info in group if info.key not in self._good]
                for info, held in zip(new, table.map(coverage, new), strict=True):
                    if held is None:
                        good.remove(info.key)
                    elif held - covered or (not held and self._lacks_ids(table, info.key, damaged)):
                        good.remove(info.key)
                        yield info
            self._good = good
        finally:
            table.close()

    def _coverage(self, info: ObjectInfo, damaged: Callable[[str], None]) -> Coverage | None:
        """The coverage of a pack; None if the object is gone or is not a pack."""
        try:
            return twice(self._objects, info.key, lambda: read_coverage(self._objects, info))
        except NotFound:
            return None
        except Damaged:
            damaged(info.key)
            return None

    def _lacks_ids(self, table: Table, key: str, damaged: Callable[[str], None]) -> bool:
        """Whether the table lacks any alert id of a pack; for alerts that have no Kafka offsets."""
        try:
            rows, _ = twice(self._objects, key, lambda: read_rows(self._objects.get(key), key))
        except NotFound:
            return False
        except Damaged:
            damaged(key)
            return False
        ids = rows["alert_id"].unique().to_pylist()
        return not set(ids) <= set(table.lookup(ids)["alert_id"].to_pylist())


def index(objects: Objects, key: str) -> None:
    """Write the run that locates what the pack at `key` holds.

    Raises `Damaged`, `NotFound`, `StoreDown`.
    """
    pack, coverage = twice(objects, key, lambda: read_named(objects.get(key), key))
    Table(objects, spec_of(key).locations, threads=1).append(pack.locations, coverage)
