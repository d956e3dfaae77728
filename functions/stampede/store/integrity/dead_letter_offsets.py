"""The Kafka offsets of dead letters, from the footers of their objects and from acceptances."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from stampede.errors import Damaged, NotFound
from stampede.store.integrity.acceptances.accepted_letters import (
    NONE,
    AcceptedLetters,
    TableAcceptances,
)
from stampede.store.integrity.acceptances.decision import letter_name
from stampede.store.integrity.verified_objects import footer_of, read_columns
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.offsets.coverage import COVERAGE, Coverage, LastUnion
from stampede.store.parquet.checksums import PARQUET_ERRORS

DEAD_LETTERS = "deadletters/"
TABLE = b"stampede.table"
"""Metadata of an object of dead letters: the table that lacks their alerts."""
NAMES = b"stampede.letters"
"""Metadata of an object of few dead letters: their names (`letter_name`), in the order of rows."""
_PLACE = ["topic", "partition", "offset"]
_THREADS = 8
Place = tuple[str, int, int]
"""Topic key, partition and offset."""


class _Decided(NamedTuple):
    """The accepted offsets that follow from these acceptances and objects of dead letters."""

    acceptances: TableAcceptances
    found: dict[ObjectInfo, Coverage]
    coverage: Coverage


class DeadLetterOffsets:
    """The offsets of the dead letters of a store.

    The footer of an object is read once, however often its offsets are asked for: its name is a
    digest, so its content never changes. Use it in one thread at a time.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known: dict[ObjectInfo, Coverage] = {}
        self._unions: dict[str, LastUnion] = {}
        self._acceptances = AcceptedLetters(objects)
        self._decided: dict[str, _Decided] = {}
        self._names: dict[ObjectInfo, list[tuple[str, Place]]] = {}

    def of_table(self, table: str, quarantined: dict[str, str] | None = None) -> Coverage:
        """The offsets of a table's dead letters, and of accepted ones that are purged.

        An object that cannot be read or verified does not count. It is added to `quarantined`, by
        key with the reason. List twice: a concurrent purge may copy the letters that stay to a key
        this listing has passed, then delete the original. Read the acceptances last: a letter may
        be purged once it is accepted. Raises `StoreDown`.
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
        acceptances = self._acceptances.of_table(table, quarantined)
        decided = self._decided.get(table)
        if not (decided and decided.acceptances is acceptances and decided.found == found):
            decided = _Decided(acceptances, found, self._without_refused(acceptances, found))
            self._decided[table] = decided
        union = self._unions.setdefault(table, LastUnion())
        return union.of([*found.values(), acceptances.coverage])

    def accepted(self, table: str) -> Coverage:
        """Those offsets of the last `of_table` of which every letter is accepted."""
        decided = self._decided.get(table)
        return decided.coverage if decided else Coverage()

    def objects(self, table: str) -> dict[ObjectInfo, Coverage]:
        """The objects of a table that the last `of_table` has read, and their offsets.

        Each has the columns `topic`, `partition`, `offset` and `code`.
        """
        prefix = f"{DEAD_LETTERS}{table}/"
        letters = {info: held for info, held in self._known.items() if info.key.startswith(prefix)}
        decided = self._decided.get(table)
        return letters | dict((decided.acceptances if decided else NONE).objects)

    def _without_refused(
        self, acceptances: TableAcceptances, found: dict[ObjectInfo, Coverage]
    ) -> Coverage:
        """The accepted offsets, without those that have another letter too."""
        accepted, _ = acceptances.coverage.split()
        if not accepted:
            return accepted
        refused = [
            self._refused(info, held, acceptances)
            for info, held in found.items()
            if held - accepted != held
        ]
        self._names = {info: names for info, names in self._names.items() if info in self._known}
        return accepted - Coverage.union(refused)

    def _refused(self, info: ObjectInfo, held: Coverage, acceptances: TableAcceptances) -> Coverage:
        """The offsets of an object whose letters are not accepted."""
        if info not in self._names:
            try:
                self._names[info] = read_names(self._objects, info)
            except (Damaged, NotFound):  # it may have any letter, or another object has it now
                return held
        refused: dict[tuple[str, int], list[int]] = {}
        for name, (topic, partition, offset) in self._names[info]:
            if name not in acceptances.letters:
                refused.setdefault((topic, partition), []).append(offset)
        return Coverage.of(refused)

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


def read_names(objects: Objects, info: ObjectInfo) -> list[tuple[str, Place]]:
    """Name and place of each letter with an offset in an object of dead letters.

    Raises `NotFound`, `StoreDown`, `Damaged`.
    """
    named = footer_of(objects, info).metadata.get(NAMES)
    rows = read_columns(objects, info, _PLACE if named else [*_PLACE, "data"])
    places: list[Place] = [*zip(*(rows[name].to_pylist() for name in _PLACE), strict=True)]
    if named:
        names = named.decode().split()
    else:  # there are many of them, or an earlier version wrote the object
        table = info.key.split("/")[1]
        ids = ("/".join([table, *map(str, place)]) for place in places)
        names = [*map(letter_name, ids, rows["data"].to_pylist())]
    if len(names) != len(places):
        raise Damaged(f"{info.key} does not name each of its letters")
    return [each for each in zip(names, places, strict=True) if each[1][2] is not None]


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
    """The offsets of a table's dead letters, those of accepted ones too, read now.

    Raises `StoreDown`.
    """
    return DeadLetterOffsets(objects).of_table(table)
