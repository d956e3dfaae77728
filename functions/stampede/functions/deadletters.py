"""deadletters: stores events that could not be stored elsewhere, unchanged, with the reason.

The path that an event is sent to names the table that lacks it, so that the coverage of a table
and of its dead letters together account for every offset.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from stampede.deadletters.dead_letter import write_letters
from stampede.errors import NotAnEvent
from stampede.events.batching import Outcome
from stampede.events.event import Event
from stampede.store.objects import Objects
from stampede.store.schema import TABLES


def table_of_path(path: str) -> str:
    """The table that the path of a dead-letter sink names. Raises `NotAnEvent` for other paths."""
    name = path.strip("/")
    if name not in TABLES:
        raise NotAnEvent(
            f"a dead letter is sent to /TABLE, one of {', '.join(sorted(TABLES))}, not to {path!r}"
        )
    return name


class DeadLetters:
    """Stores dead letters, one object per table and batch."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def store_batch(self, events: Sequence[Event]) -> list[Outcome]:
        """Make events durable as dead letters of the tables their paths name."""
        outcomes: list[Outcome] = [None] * len(events)
        by_table: dict[str, list[Event]] = defaultdict(list)
        for number, event in enumerate(events):
            try:
                by_table[table_of_path(event.path)].append(event)
            except NotAnEvent as error:
                outcomes[number] = error
        for table, letters in by_table.items():
            await asyncio.to_thread(self._objects.put, *write_letters(table, letters))
        return outcomes
