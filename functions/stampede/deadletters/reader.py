"""Reads the dead letters of a store, one object at a time, the newest first."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from stampede.deadletters.dead_letter import (
    DeadLetter,
    letters_of,
    name_of,
    read_rows,
    table_of_key,
)
from stampede.errors import Damaged, NotFound, SetupError
from stampede.events.cloudevents.event import Position, coverage_of_positions
from stampede.store.integrity.acceptances.decision import is_decision
from stampede.store.integrity.dead_letter_offsets import DEAD_LETTERS, read_coverage
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import TABLES


class DeadLetterFilter(NamedTuple):
    """Selects the letters that meet every condition that is not None.

    `ids` are those of `DeadLetter.id`; `reason` is a part of the reason, in upper or lower case.
    """

    table: str | None = None
    ids: frozenset[str] | None = None
    reason: str | None = None

    def matches(self, letter: DeadLetter) -> bool:
        """Whether a letter is selected."""
        return (
            self.table in (None, letter.table)
            and (self.ids is None or letter.id in self.ids)
            and (self.reason is None or self.reason.lower() in (letter.reason or "").lower())
        )

    def offsets(self) -> Mapping[str, Coverage] | None:
        """Offsets of the ids, by table; None if offsets alone do not select the letters.

        Raises `SetupError` for an id that no letter can have.
        """
        if self.ids is None:
            return None
        positions_by_table: dict[str, list[Position]] = {}
        for name in self.ids:
            table, *rest = name.split("/")
            match rest:
                case [_] if table in TABLES:
                    return None
                case [topic, partition, offset] if (
                    table in TABLES and partition.isdecimal() and offset.isdecimal()
                ):
                    position = Position(topic, int(partition), int(offset))
                    positions_by_table.setdefault(table, []).append(position)
                case _:
                    raise SetupError(
                        f"not a dead letter's id: {name!r}; `stampede deadletters list` has them"
                    )
        return {
            table: coverage_of_positions(positions)
            for table, positions in positions_by_table.items()
        }


EVERY_LETTER = DeadLetterFilter()


class DeadLetterReader:
    """The selected dead letters of a store, listed when the reader is made.

    An object that is damaged does not hide the others: the reader skips it, and `check` names it.
    Of one that is purged or merged meanwhile, the reader finds the letters that stayed. Raises
    `SetupError` for a filter that no letter can match, and `StoreDown`.
    """

    def __init__(self, objects: Objects, letter_filter: DeadLetterFilter = EVERY_LETTER) -> None:
        table = letter_filter.table
        if table not in (None, *TABLES):
            raise SetupError(f"no table {table!r}: there are {', '.join(TABLES)}")
        self._objects = objects
        self._filter = letter_filter
        self._offsets = letter_filter.offsets()
        self._prefix = f"{DEAD_LETTERS}{table}/" if table else DEAD_LETTERS
        self._infos = self._list()
        self._skipped: dict[str, str] = {}
        self._not_found = set(letter_filter.ids or ())

    def letters(self) -> Iterator[DeadLetter]:
        """Each selected letter once, even if two objects hold it; within an object by offset.

        Iterate only once. Raises `StoreDown`.
        """
        seen: set[str] = set()
        for info, rows in self.contents():
            for letter in letters_of(rows, info):
                if not self._filter.matches(letter):
                    continue
                self._not_found.discard(letter.id)
                if (name := name_of(table_of_key(info.key), letter.event)) not in seen:
                    seen.add(name)
                    yield letter

    def contents(self) -> Iterator[tuple[ObjectInfo, pa.Table]]:
        """Each object that may hold selected letters, and all its rows (schema `DEAD_LETTER`).

        Raises `StoreDown`.
        """
        done: set[str] = set()
        infos = self._infos
        while infos:
            gone: dict[str, str] = {}
            for info in infos:
                done.add(info.key)
                try:
                    rows = self._rows(info)
                except NotFound as error:
                    gone[info.key] = error.message
                    continue
                except Damaged as error:
                    self._skipped[info.key] = error.message
                    continue
                if rows is not None:
                    yield info, rows
            # What stayed of purged or merged objects is in objects that are listed now.
            listed = {info.key: info for info in self._list()} if gone else {}
            self._skipped |= {key: why for key, why in gone.items() if key in listed}
            infos = [info for key, info in listed.items() if key not in done]

    def check(self) -> None:
        """Raise an error that names what was not read. Call it after reading all letters.

        Raises
        ------
        Damaged
            Objects were skipped.
        NotFound
            No letter has one of the selected ids.
        """
        if self._skipped:
            raise Damaged("; ".join(self._skipped.values()))
        if self._not_found:
            raise NotFound(f"there is no dead letter {', '.join(sorted(self._not_found))}")

    def _list(self) -> list[ObjectInfo]:
        """The objects of the selected table or of all, newest first."""
        listed = self._objects.list(self._prefix)
        infos = [info for info in listed if not is_decision(info.key)]
        return sorted(infos, key=lambda info: (info.modified, info.key), reverse=True)

    def _rows(self, info: ObjectInfo) -> pa.Table | None:
        """The rows of an object; None if its footer shows that it has no selected offset."""
        table = table_of_key(info.key)
        if self._offsets is not None:
            selected = self._offsets.get(table, Coverage())
            try:
                held = read_coverage(self._objects, info)
            except Damaged:
                return read_rows(self._objects, info)  # raises an error that names the damage
            if selected - held == selected:
                return None
        return read_rows(self._objects, info)
