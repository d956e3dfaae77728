"""The Kafka offsets of dead letters, from the footers of their objects."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from stampede.errors import Damaged, NotFound
from stampede.store.integrity.verified_objects import footer_of
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.offsets.coverage import COVERAGE, Coverage, LastUnion
from stampede.store.parquet.checksums import PARQUET_ERRORS

DEAD_LETTERS = "deadletters/"
TABLE = b"stampede.table"
"""Metadata of an object of dead letters: the table that lacks their alerts."""
_THREADS = 8


class DeadLetterOffsets:
    """The offsets of the dead letters of a store.

    The footer of an object is read once, however often its offsets are asked for: its name is a
    digest, so its content never changes. Use it in one thread at a time.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known: dict[ObjectInfo, Coverage] = {}
        self._unions: dict[str, LastUnion] = {}

    def of_table(self, table: str, quarantined: dict[str, str] | None = None) -> Coverage:
        """The offsets of a table's dead letters. Raises `StoreDown`.

        An object that cannot be read or verified does not count. It is added to `quarantined`, by
        key with the reason. List twice: a concurrent purge may copy the letters that stay to a key
        this listing has passed, then delete the original.
        """
        prefix = f"{DEAD_LETTERS}{table}/"
        found: dict[ObjectInfo, Coverage] = {}
        for _ in range(2):
            listed = [info for info in self._objects.list(prefix) if info not in found]
            new = [info for info in listed if info not in self._known]
            found |= {info: self._known[info] for info in listed if info in self._known}
            for info, coverage in self._read(new):
                if isinstance(coverage, Coverage):
                    found[info] = coverage
                elif coverage is not None and quarantined is not None:
                    quarantined[info.key] = coverage.message
        kept = {info: held for info, held in self._known.items() if not info.key.startswith(prefix)}
        self._known = kept | found
        return self._unions.setdefault(table, LastUnion()).of(found.values())

    def objects(self, table: str) -> dict[ObjectInfo, Coverage]:
        """The objects of a table that the last `of_table` has read, and their offsets."""
        prefix = f"{DEAD_LETTERS}{table}/"
        return {info: held for info, held in self._known.items() if info.key.startswith(prefix)}

    def _read(
        self, infos: list[ObjectInfo]
    ) -> Iterator[tuple[ObjectInfo, Coverage | Damaged | None]]:
        """The offsets of each object; None if it is gone, an error if it cannot be verified."""
        if len(infos) < 2:
            yield from ((info, self._of_object(info)) for info in infos)
            return
        with ThreadPoolExecutor(_THREADS, "dead-letters") as pool:
            yield from zip(infos, pool.map(self._of_object, infos), strict=True)

    def _of_object(self, info: ObjectInfo) -> Coverage | Damaged | None:
        try:
            return read_coverage(self._objects, info)
        except NotFound:
            return None
        except Damaged as error:
            return error


def read_coverage(objects: Objects, info: ObjectInfo) -> Coverage:
    """The coverage in the footer of a pack or of an object of dead letters.

    Raises `NotFound`, `StoreDown`, and `Damaged` if the footer is not as it was written.
    """
    pairs = footer_of(objects, info).metadata
    folder, table, _ = f"{info.key}//".split("/", 2)
    if f"{folder}/" == DEAD_LETTERS and pairs.get(TABLE) != table.encode():
        raise Damaged(f"{info.key} does not hold dead letters of {table}: it is another object")
    try:
        return Coverage.from_json(pairs[COVERAGE])
    except PARQUET_ERRORS as error:
        raise Damaged(f"{info.key} does not have a footer with coverage: {error}") from None


def dead_lettered(objects: Objects, table: str) -> Coverage:
    """The offsets of a table's dead letters, read now. Raises `StoreDown`."""
    return DeadLetterOffsets(objects).of_table(table)
