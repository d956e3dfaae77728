"""Sends dead letters to their functions again, as the events that they were."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from stampede.config.settings import Settings
from stampede.deadletters.accept import Acceptances
from stampede.deadletters.dead_letter import DeadLetter
from stampede.deadletters.stored import StoredAlerts
from stampede.errors import SetupError
from stampede.events.cloudevents.event import Position
from stampede.events.delivery.concurrent_send import send_all
from stampede.events.delivery.response import SinkResponse
from stampede.events.delivery.sink import Sink
from stampede.events.kafka.source import connections


@dataclass
class Replayed:
    """What a replay has done so far.

    Attributes
    ----------
    accepted
        How many letters a function accepted: they are durable.
    positions
        Kafka positions of the accepted letters, by table.
    already
        How many letters were stored before, and so were not sent.
    accepted_before
        How many letters an operator has accepted as rightly refused, and so were not sent.
    refused
        Id and reason of each letter that a function refused again. It stays a dead letter.
    complete
        Whether every letter was tried; False if the replay was stopped.
    """

    accepted: int = 0
    positions: dict[str, list[Position]] = field(default_factory=dict)
    already: int = 0
    accepted_before: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    complete: bool = True

    def add(self, letter: DeadLetter, response: SinkResponse | None) -> None:
        """Count a letter; `response` is None if its function accepted it."""
        if response:
            reason = letter.brief(response.reason)
            self.refused.append((letter.id, f"{response.outcome}: {reason}"))
            return
        self.accepted += 1
        if letter.position:
            self.positions.setdefault(letter.table, []).append(letter.position)


async def replay(
    letters: Iterator[DeadLetter],
    sinks: Mapping[str, str],
    stored: StoredAlerts,
    settings: Settings,
    stop: asyncio.Event,
    progress: Callable[[Replayed], None],
    acceptances: Acceptances | None = None,
) -> Replayed:
    """Send each letter that is not stored to the function of its table, and await the response.

    Letters that are accepted as rightly refused by `acceptances` are not sent.

    A letter that its function refuses again stays a dead letter, unchanged. While a function is
    down, its letters wait. Setting `stop` abandons the letters in flight; see `send_all`.

    Parameters
    ----------
    sinks
        URL by table.
    progress
        Called after every response.

    Raises
    ------
    SetupError
        There is no sink for the table of a letter.
    StoreDown
        The letters cannot be read from the store.
    """
    done = Replayed()

    def not_stored() -> Iterator[DeadLetter]:
        for letter, whether in stored.of(letters):
            if whether.stored:
                done.already += 1
            elif acceptances and acceptances.of(letter):
                done.accepted_before += 1
            elif letter.table not in sinks:
                raise SetupError(f"no function is known for {letter.id}: give --sink")
            else:
                yield letter

    async with connections(settings) as pool:
        by_table = {
            table: Sink("sink", url, pool, stop, settings.backoff_seconds)
            for table, url in sinks.items()
        }

        async def send(letter: DeadLetter) -> None:
            sink = by_table[letter.table]
            done.add(letter, await sink.send(letter.headers(), letter.data, settings.retries))
            progress(done)

        done.complete = await send_all(
            not_stored(), send, lambda letter: len(letter.data), settings, stop
        )
    return done
