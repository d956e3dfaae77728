"""Sends dead letters to their functions again, as the events that they were."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from stampede.deadletters.dead_letter import DeadLetter, reason_of_answer
from stampede.deadletters.reader import Stored, is_stored
from stampede.errors import SetupError, StampedeError
from stampede.events.delivery import Abandoned, Sink
from stampede.events.event import Position
from stampede.events.source import connections
from stampede.settings import Settings

_AT_ONCE = 16  # letters taken from the store's object by one call of a thread


@dataclass
class Replayed:
    """What became of letters.

    Attributes
    ----------
    accepted
        How many a function took: they are durable.
    positions
        Their places in Kafka, by table.
    already
        How many were stored before, and not sent.
    refused
        Id, and what the function said, of those that stay what they are.
    complete
        Whether all were tried; not where it was told to stop.
    """

    accepted: int = 0
    positions: dict[str, list[Position]] = field(default_factory=dict)
    already: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    complete: bool = True


async def replay(
    letters: Iterator[DeadLetter],
    sinks: Mapping[str, str],
    stored: Stored,
    settings: Settings,
    stop: asyncio.Event,
    tell: Callable[[Replayed], None],
) -> Replayed:
    """Send each letter that is not stored to the function of its table, until it is answered.

    What a function refuses again stays a dead letter as it is. Where a function is down its
    letters wait. Telling it to stop leaves what is under way without an answer: harmless, as
    the same event is stored once however often it comes.

    Parameters
    ----------
    sinks
        URL by table.
    tell
        Called at every answer.

    Raises
    ------
    SetupError
        There is no sink for the table of a letter.
    StoreDown
        The store does not give the letters.
    """
    done = Replayed()
    room = Room(max(1, settings.in_flight // 4), settings.in_flight_bytes)
    async with connections(settings) as held:
        ways = {
            table: Sink("sink", url, held, stop, settings.backoff_seconds)
            for table, url in sinks.items()
        }

        async def send(letter: DeadLetter) -> None:
            try:
                way = ways[letter.table]
                answer = await way.send(letter.headers(), letter.data, settings.retries)
            finally:
                await room.leave(len(letter.data))
            if answer:
                reason = letter.brief(reason_of_answer(answer.detail.decode(errors="replace")))
                done.refused.append((letter.id, f"{answer.outcome}: {reason}"))
            else:
                done.accepted += 1
                if letter.position:
                    done.positions.setdefault(letter.table, []).append(letter.position)
            tell(done)

        try:
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(_until(stop))
                # In a thread: reading must not hold up what is under way.
                while some := await asyncio.to_thread(lambda: list(islice(letters, _AT_ONCE))):
                    for letter in some:
                        if is_stored(stored, letter.table, letter.position):
                            done.already += 1
                        elif letter.table not in sinks:
                            raise SetupError(f"no function is known for {letter.id}: give --sink")
                        else:
                            await room.enter(len(letter.data))
                            tasks.create_task(send(letter))
                await room.empty()
                watch.cancel()
        except* Abandoned:
            done.complete = False
        except* StampedeError as group:  # out of the group, for whoever expects one error
            raise group.exceptions[0] from None
    return done


class Room:
    """Bounds how many letters are under way, and how many bytes of them; one at least may be."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._letters = self._bytes = 0
        self._changed = asyncio.Condition()

    async def enter(self, size: int) -> None:
        """Wait until there is room for a letter of so many bytes."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: (
                    not self._letters
                    or (self._letters < self._most and self._bytes + size <= self._most_bytes)
                )
            )
            self._letters += 1
            self._bytes += size

    async def leave(self, size: int) -> None:
        """Make room again."""
        async with self._changed:
            self._letters -= 1
            self._bytes -= size
            self._changed.notify_all()

    async def empty(self) -> None:
        """Wait until no letter is under way."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._letters)


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()
    raise Abandoned
