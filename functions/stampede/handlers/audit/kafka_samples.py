"""Compares samples of what Kafka has with the alerts that are stored under their offsets."""

import random
from collections.abc import Mapping, Sequence

from stampede.deadletters.reader import DeadLetterFilter, DeadLetterReader
from stampede.deadletters.stored import LETTER_BATCH, AlertCheck
from stampede.errors import NotFound, Undecodable
from stampede.events.cloudevents.event import Event
from stampede.events.cloudevents.kafka_record import Record
from stampede.store.integrity.ledger import Account
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Interval, PartitionId
from stampede.store.offsets.intervals import count

SAMPLES = 48  # records of a topic that are compared with the store, but at least `LEAST`
LEAST = 3  # of a partition: the oldest, the newest, and one between
ANEW = "the topic was made anew under its name, or the cluster was replaced"


def chosen(spans: Sequence[Interval], most: int, numbers: random.Random) -> list[int]:
    """The oldest and the newest offset, and others at random: at most `most`, in order."""
    total = count(spans)
    if not total:
        return []
    places = {0, total - 1, *numbers.sample(range(total), min(total, most - 2))}
    offsets, passed = [], 0
    for low, high in spans:
        offsets += [low + p - passed for p in sorted(places) if passed <= p < passed + high - low]
        passed += high - low
    return offsets


def differing(
    accounts: Mapping[str, Account],
    key: str,
    samples: Mapping[int, Sequence[Record]],
    check: AlertCheck,
    objects: Objects,
) -> dict[tuple[str, PartitionId], str]:
    """The partitions in a table whose offsets are accounted for with other alerts, and why.

    Parameters
    ----------
    key
        The topic key under which the offsets are accounted for.
    samples
        Messages that Kafka has, by partition.

    Raises
    ------
    StoreDown
    """
    found = {}
    for table, account in accounts.items():
        for partition, messages in samples.items():
            stored = [m for m in messages if (key, partition, m.offset) in account.stored]
            dead = [
                message
                for message in messages
                if message not in stored
                and (key, partition, message.offset) in account.dead_lettered
            ]
            reasons = _not_stored(table, stored, check) + _other_letters(objects, table, key, dead)
            if reasons:
                found[table, (key, partition)] = (
                    f"{reasons[0]}; {len(reasons)} of {len(stored) + len(dead)} samples are not "
                    f"what Kafka has: {ANEW}, or the store lost them"
                )
    return found


def _not_stored(table: str, messages: Sequence[Record], check: AlertCheck) -> list[str]:
    """The messages whose alerts are not in a table, although their offsets are stored."""
    reasons = []
    for first in range(0, len(messages), LETTER_BATCH):
        events = [_event(message) for message in messages[first : first + LETTER_BATCH]]
        for event, reason in zip(events, check(table, events), strict=True):
            if isinstance(reason, NotFound | Undecodable):
                reasons.append(f"{event.attributes['id']} is stored, but {reason.message}")
            elif reason is not None:
                raise reason
    return reasons


def _event(message: Record) -> Event:
    return Event({"id": f"offset {message.offset:,}", "source": message.topic}, message.value)


def _other_letters(objects: Objects, table: str, key: str, messages: Sequence[Record]) -> list[str]:
    """The messages whose dead letters have other bytes."""
    ids = {f"{table}/{key}/{each.partition}/{each.offset}": each for each in messages}
    if not ids:
        return []
    held: dict[str, list[bytes]] = {}
    reader = DeadLetterReader(objects, DeadLetterFilter(table, frozenset(ids)))
    for letter in reader.letters():
        held.setdefault(letter.id, []).append(letter.data)
    return [
        f"the dead letter {name} has other bytes"
        for name, message in ids.items()
        if name in held and message.value not in held[name]
    ]
