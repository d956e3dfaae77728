"""Records that letters are rightly refused, or that they are not after all.

Nothing is changed or deleted: one object a table names the letters (`acceptances.decision`). A
crash between two tables leaves the letters of the second as they were; the same command again
goes on with these.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from stampede.deadletters.dead_letter import DeadLetter
from stampede.deadletters.stored import Whether
from stampede.errors import StoreDown
from stampede.events.cloudevents.event import Event
from stampede.store.integrity.acceptances.accepted_letters import (
    AcceptedLetters,
    TableAcceptances,
)
from stampede.store.integrity.acceptances.decision import LETTERS, Decision, write_decision
from stampede.store.objects.object_store import Objects
from stampede.store.runs.schema import TABLES


class Acceptances:
    """The acceptances of every table, as of the moment when this was made.

    Raises `StoreDown`. A decision that is damaged does not count.
    """

    def __init__(self, objects: Objects) -> None:
        reader = AcceptedLetters(objects)
        self._tables = {table: reader.of_table(table) for table in TABLES}

    def of(self, letter: DeadLetter) -> Decision | None:
        """The acceptance of a letter; None if it is not accepted."""
        return self._tables[letter.table].letters.get(letter.name)

    def has(self, table: str, name: str) -> bool:
        """Whether the letter of that name is accepted."""
        return name in self._tables[table].letters

    def of_table(self, table: str) -> TableAcceptances:
        """The decisions about a table's letters."""
        return self._tables[table]


@dataclass
class Selected:
    """Letters that an operator has selected.

    Attributes
    ----------
    changing
        Rows of the schema `LETTERS`, by table: letters to which a decision will be new.
    same
        How many letters are accepted already, or for `undo` not accepted.
    stored
        How many letters were stored since: there is nothing to accept.
    """

    changing: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    same: int = 0
    stored: int = 0

    @property
    def count(self) -> int:
        """Number of letters in `changing`."""
        return sum(map(len, self.changing.values()))


def select(
    letters: Iterable[tuple[DeadLetter, Whether]], acceptances: Acceptances, undo: bool = False
) -> Selected:
    """The letters to accept; with `undo` those whose acceptance is to be withdrawn."""
    selected = Selected()
    for letter, whether in letters:
        if (acceptances.of(letter) is not None) is not undo:
            selected.same += 1
        elif whether.stored and not undo:
            selected.stored += 1
        else:
            selected.changing.setdefault(letter.table, []).append(_row_of(letter))
    return selected


def decide(
    objects: Objects, selected: Selected, acceptances: Acceptances, reason: str, undo: bool = False
) -> None:
    """Make a decision about the selected letters durable, and read it back.

    Raises `StoreDown`; decisions about the tables before stay.
    """
    at = objects.now()
    for table, changing in selected.changing.items():
        rows = pa.Table.from_pylist(changing, schema=LETTERS)
        counting = acceptances.of_table(table).counting
        earlier = (counting.get(name, frozenset()) for name in rows["letter"].to_pylist())
        replaces = frozenset().union(*earlier)
        key, data = write_decision(table, Decision("", not undo, at, reason, replaces, rows))
        objects.put(key, data)
        if objects.get(key) != data:
            raise StoreDown(f"{key} does not read back as it was written: give the command again")


def _row_of(letter: DeadLetter) -> dict[str, object]:
    topic, partition, offset = letter.position or (None, None, None)
    return {
        "letter": letter.name,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "skipped": Event(letter.attributes, b"").skipped,
        "code": letter.code,
    }
