"""All dead letters of a store: read one object at a time, the newest first."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from stampede.deadletters.dead_letter import DeadLetter, letters_of, read_rows, table_of_key
from stampede.errors import Damaged, NotFound, SetupError
from stampede.events.event import Position, coverage_of_positions
from stampede.store import ledger
from stampede.store.coverage import Coverage
from stampede.store.objects import ObjectInfo, Objects
from stampede.store.runs import digest
from stampede.store.schema import TABLES
from stampede.store.tables import Table

Stored = Mapping[str, Coverage]


class DeadLetterFilter(NamedTuple):
    """Which letters are meant: those that meet every condition that is not None.

    `ids` are those of `DeadLetter.id`; `reason` is a part of what the function said, in any case.
    """

    table: str | None = None
    ids: frozenset[str] | None = None
    reason: str | None = None

    def takes(self, letter: DeadLetter) -> bool:
        """Whether a letter is meant."""
        return (
            self.table in (None, letter.table)
            and (self.ids is None or letter.id in self.ids)
            and (self.reason is None or self.reason.lower() in (letter.reason or "").lower())
        )

    def wanted(self) -> Stored | None:
        """Offsets of the ids by table; None where more than offsets is meant.

        Raises `SetupError` for what can be no id.
        """
        if self.ids is None:
            return None
        places: dict[str, list[Position]] = {}
        for name in self.ids:
            table, *place = name.split("/")
            match place:
                case [_] if table in TABLES:
                    return None
                case [topic, partition, offset] if (
                    table in TABLES and partition.isdecimal() and offset.isdecimal()
                ):
                    position = Position(topic, int(partition), int(offset))
                    places.setdefault(table, []).append(position)
                case _:
                    raise SetupError(
                        f"not a dead letter's id: {name!r}; `stampede deadletters list` has them"
                    )
        return {table: coverage_of_positions(some) for table, some in places.items()}


ALL = DeadLetterFilter()
NOTHING: Stored = {name: Coverage() for name in TABLES}


class DeadLetterReader:
    """The dead letters of a store that are chosen, as they lie there when it is made.

    An object that is gone, or is not what was stored, does not hide the others: it is left out,
    and `check` names it. Raises `SetupError` for a choice that cannot be, and `StoreDown`.
    """

    def __init__(self, objects: Objects, choice: DeadLetterFilter = ALL) -> None:
        if choice.table not in (None, *TABLES):
            raise SetupError(f"no table {choice.table!r}: there are {', '.join(TABLES)}")
        self._objects = objects
        self._choice = choice
        self._wanted = choice.wanted()
        prefix = f"{choice.table}/" if choice.table else ""
        infos = objects.list(f"{ledger.DEAD_LETTERS}{prefix}")
        self._infos = sorted(infos, key=lambda info: (info.modified, info.key), reverse=True)
        self._odd: dict[str, str] = {}
        self._unknown = set(choice.ids or ())

    def letters(self) -> Iterator[DeadLetter]:
        """Each letter once, though it be stored twice; of one object in order of offsets.

        Other bytes are another letter: a topic that was made anew has the same offsets again.
        To be iterated once. Raises `StoreDown`.
        """
        seen: set[str] = set()
        for info, rows in self.contents():
            for letter in letters_of(rows, info):
                if self._choice.takes(letter):
                    self._unknown.discard(letter.id)
                    if (name := digest(letter.id, letter.data)) not in seen:
                        seen.add(name)
                        yield letter

    def contents(self) -> Iterator[tuple[ObjectInfo, pa.Table]]:
        """Each object that may hold letters that are chosen, and all its rows, `DEAD_LETTER`.

        Raises `StoreDown`.
        """
        for info in self._infos:
            try:
                rows = self._rows(info)
            except (Damaged, NotFound) as error:
                self._odd[info.key] = error.message
                continue
            if rows is not None:
                yield info, rows

    def check(self) -> None:
        """Once all letters were read: raise an error that names what was not.

        Raises
        ------
        Damaged
            Objects were left out.
        NotFound
            No letter has one of the ids that were chosen.
        """
        if self._odd:
            raise Damaged("; ".join(self._odd.values()))
        if self._unknown:
            raise NotFound(f"there is no dead letter {', '.join(sorted(self._unknown))}")

    def _rows(self, info: ObjectInfo) -> pa.Table | None:
        """The rows of an object; None where its footer says that it has none of the ids."""
        table = table_of_key(info.key)
        if self._wanted is not None:
            wanted = self._wanted.get(table, Coverage())
            try:
                held = ledger.read_coverage(self._objects, info)
            except (pa.ArrowException, OSError, LookupError, TypeError, ValueError):
                return read_rows(self._objects, info)  # which says what is wrong
            if wanted - held == wanted:
                return None
        return read_rows(self._objects, info)


def stored_offsets(objects: Objects) -> dict[str, Coverage]:
    """The offsets that are stored now, by table. Raises `StoreDown`."""
    found = {}
    for name, spec in TABLES.items():
        table = Table(objects, spec)
        table.refresh()
        found[name] = table.coverage()
    return found


def is_stored(stored: Stored, table: str, position: Position | None) -> bool:
    """Whether the ledger says that an offset is stored by now; of no offset it cannot say."""
    return position is not None and position in stored[table]
