"""deadletters: stores events that could not be stored elsewhere, unchanged, with the reason.

The path that an event is sent to names the table that lacks it, so that the coverage of a table
and of its dead letters together account for every offset.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from stampede.deadletters.dead_letter import write_letters
from stampede.errors import NotAnEvent, StampedeError
from stampede.events.cloudevents.event import Event
from stampede.events.workers.batching import Outcome
from stampede.store.objects.object_store import Objects
from stampede.store.runs.schema import TABLES


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
        by_table: dict[str, list[int]] = defaultdict(list)
        for number, event in enumerate(events):
            try:
                by_table[table_of_path(event.path)].append(number)
            except NotAnEvent as error:
                outcomes[number] = error
        for table, numbers in by_table.items():
            try:
                await self._store(table, [events[number] for number in numbers])
            except StampedeError:
                raise  # the store's: it concerns all
            except Exception:
                for number in numbers:
                    outcomes[number] = await self._store_alone(table, events[number])
        return outcomes

    async def _store(self, table: str, letters: Sequence[Event]) -> None:
        await asyncio.to_thread(self._objects.put, *write_letters(table, letters))

    async def _store_alone(self, table: str, letter: Event) -> Outcome:
        """Store a letter of a batch that cannot be written; the error if this is the one."""
        try:
            await self._store(table, [letter])
        except StampedeError as error:
            return error
        except Exception as error:
            return StampedeError(f"it cannot be written: {error!r}")
        return None
