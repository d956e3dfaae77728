"""Records that were taken from Kafka and whose topic is not proven yet.

A topic may be deleted and made anew under its name at any moment, and Kafka's client goes on with
the new one by itself. So a record is held until Kafka says, after the record was fetched, that
the topic has still the id that it had before its partition was begun. No id is ever used twice:
then the record is of that topic. docs/adr/0058-proven-topics.md has the argument.
"""

import time
from collections.abc import Collection
from typing import NamedTuple

from stampede.events.cloudevents.kafka_record import Record
from stampede.events.kafka.in_flight import AssignedPartition, RecordsInFlight
from stampede.events.kafka.topic_ids import Answer, TopicIds

ASK_SECONDS = 0.1  # least time between two requests while records flow
IDLE_SECONDS = 3.0  # while none do: how soon a topic that was made anew is noticed
RESPONSE_SECONDS = 0.02  # a response is waited for so long; the next one is looked for later


class Held(NamedTuple):
    """A record that was taken, or without one the end of a partition."""

    partition: AssignedPartition
    topic: str
    offset: int
    record: Record | None = None


class HeldRecords:
    """Holds records until their topics are proven.

    Parameters
    ----------
    topic_ids
        Asks Kafka.
    in_flight
        Counts the records, so that they are bounded.
    """

    def __init__(self, topic_ids: TopicIds, in_flight: RecordsInFlight) -> None:
        self._topic_ids = topic_ids
        self._in_flight = in_flight
        self._held: list[Held] = []
        self._asked_for = 0  # the first so many of them were taken before the last request
        self._asked = time.monotonic()
        self._cannot_ask = False  # the last time it could not be asked

    def hold(self, batch: list[Held]) -> None:
        """Hold what was just taken."""
        self._in_flight.count([held.record for held in batch if held.record])
        self._held += batch

    def seconds_to_wait(self) -> float:
        """How long to wait for more records at most: until what is held can be proven."""
        if not self._held:
            return IDLE_SECONDS
        if self._topic_ids.asking:
            return 0.0
        return max(0.0, self._asked + ASK_SECONDS - time.monotonic())

    @property
    def proven_soon(self) -> bool:
        """Whether there are held records, and Kafka is not late with its response."""
        late = self._topic_ids.asking and time.monotonic() - self._asked > ASK_SECONDS
        return bool(self._held) and not late and not self._cannot_ask

    def answer(self, topics: Collection[str], now: bool) -> Answer | None:
        """Ask Kafka for the ids of topics if it is time to, or if it is to be `now`.

        Returns a response that has come. Drops records of partitions that were given up: there may
        be no topic left to ask for.
        """
        self._drop_given_up()
        interval = ASK_SECONDS if self._held else IDLE_SECONDS
        due = time.monotonic() - self._asked >= interval
        at_once = now and self._held and not self._cannot_ask
        if (due or at_once) and not self._topic_ids.asking:
            self._asked = time.monotonic()
            self._cannot_ask = not self._topic_ids.ask(topics)
            if not self._cannot_ask:
                self._asked_for = len(self._held)
        return self._topic_ids.answer(RESPONSE_SECONDS if self._held else 0)

    def proven(self, response: Answer) -> list[Held]:
        """Remove what a response proves, and return it; what it refutes is dropped.

        Partitions of a topic that is gone are passed over from now on.
        """
        asked_for, self._asked_for = self._asked_for, 0
        proven, kept, dropped = [], [], []
        for number, held in enumerate(self._held):
            partition, topic = held.partition, held.topic
            gone = response.says_gone(topic, partition.topic_id)
            if gone and not (partition.passed_over or partition.left):
                partition.passed_over, partition.again_at = True, held.offset
            if partition.passed_over or partition.left:
                dropped.append(held)
            elif number >= asked_for or topic not in response.ids:
                kept.append(held)
            else:
                proven.append(held)
        self._held = kept
        self._uncount(dropped)
        return proven

    def drop(self) -> None:
        """Drop everything: the next consumer takes it again."""
        self._uncount(self._held)
        self._held = []

    def _drop_given_up(self) -> None:
        given_up = [held for held in self._held if held.partition.left]
        if given_up:
            asked_for = self._held[: self._asked_for]
            self._asked_for = sum(not held.partition.left for held in asked_for)
            self._held = [held for held in self._held if not held.partition.left]
            self._uncount(given_up)

    def _uncount(self, dropped: list[Held]) -> None:
        self._in_flight.drop([held.record for held in dropped if held.record])
