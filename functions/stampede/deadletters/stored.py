"""Whether the alerts of dead letters are stored: by the alerts, not by their offsets alone.

A topic that was made anew under its name gives its offsets to other alerts, so a stored offset says
only that *an* alert is stored. A letter's alert is stored if its offset is stored, and the table
has a row of that very alert.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from stampede.deadletters.dead_letter import DeadLetter
from stampede.errors import StampedeError, Undecodable
from stampede.events.cloudevents.event import Event, Position
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import TABLES
from stampede.store.tables.table import Table

StoredOffsets = Mapping[str, Coverage]
"""The offsets that are stored, by table."""

AlertCheck = Callable[[str, Sequence[Event]], Sequence[StampedeError | None]]
"""For each event None if a table has a row of its alert, otherwise the reason why not."""

LETTER_BATCH = 16  # letters checked together; a letter may have megabytes


class Whether(NamedTuple):
    """Whether a letter's alert is stored.

    Attributes
    ----------
    stored
        Its offset and the alert itself are stored.
    doubt
        The reason why the alert is not taken for stored although its offset is; else None.
    """

    stored: bool
    doubt: StampedeError | None = None

    @property
    def undecodable(self) -> bool:
        """Whether only its offset is known to be stored, as its bytes name no alert."""
        return isinstance(self.doubt, Undecodable)


NOT_STORED = Whether(False)


class StoredAlerts:
    """The alerts that are stored, as of the moment when `offsets` were read."""

    def __init__(self, offsets: StoredOffsets, check: AlertCheck) -> None:
        self._offsets = offsets
        self._check = check

    def of_events(self, table: str, events: Sequence[Event]) -> list[Whether]:
        """For each event whether its alert is stored in a table. Raises `StoreDown`."""
        found = [NOT_STORED] * len(events)
        held = [
            n for n, event in enumerate(events) if has_offset(self._offsets, table, event.position)
        ]
        for first in range(0, len(held), LETTER_BATCH):
            numbers = held[first : first + LETTER_BATCH]
            doubts = self._check(table, [events[number] for number in numbers])
            for number, doubt in zip(numbers, doubts, strict=True):
                found[number] = Whether(doubt is None, doubt)
        return found

    def of(self, letters: Iterable[DeadLetter]) -> Iterator[tuple[DeadLetter, Whether]]:
        """Each letter, and whether its alert is stored. Raises `StoreDown`."""
        for table, of_table in groupby(letters, lambda letter: letter.table):
            for some in in_batches(of_table):
                found = self.of_events(table, [letter.event for letter in some])
                yield from zip(some, found, strict=True)


def in_batches(letters: Iterable[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """Letters in lists of at most `LETTER_BATCH`."""
    batch: list[DeadLetter] = []
    for letter in letters:
        batch.append(letter)
        if len(batch) == LETTER_BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def has_offset(offsets: StoredOffsets, table: str, position: Position | None) -> bool:
    """Whether a table has an offset; False without one. It may be that of another alert."""
    return position is not None and position in offsets[table]


def stored_offsets(objects: Objects) -> StoredOffsets:
    """The offsets that are stored now, by table. Raises `StoreDown`."""
    stored = {}
    for name, spec in TABLES.items():
        table = Table(objects, spec)
        table.refresh()
        stored[name] = table.coverage()
    return stored


NOTHING_STORED = StoredAlerts(
    {name: Coverage() for name in TABLES}, lambda _, events: [None] * len(events)
)
"""Says of every letter that it is not stored."""
