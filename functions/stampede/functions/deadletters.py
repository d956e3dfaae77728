"""deadletters: keeps what could not be stored, with the reason, bytes and attributes unchanged.

The path an event is sent to names the table that lacks it, so that coverage of the table and of
its dead letters together account for every offset.
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
    """The table that the path of a dead-letter sink names. Raises `NotAnEvent`."""
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
        verdicts: list[Outcome] = [None] * len(events)
        by_table: dict[str, list[Event]] = defaultdict(list)
        for place, event in enumerate(events):
            try:
                by_table[table_of_path(event.path)].append(event)
            except NotAnEvent as error:
                verdicts[place] = error
        for table, letters in by_table.items():
            await asyncio.to_thread(self._objects.put, *write_letters(table, letters))
        return verdicts
