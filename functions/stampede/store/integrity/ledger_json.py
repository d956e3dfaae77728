"""The ledger as JSON: the same fields in `/v1/ledger` and in `stampede audit --json`."""

from collections.abc import Sequence
from typing import Any

from stampede.config.topics import Topics
from stampede.store.integrity.ledger import Entry
from stampede.store.offsets.coverage import Interval


def entry_json(entry: Entry, topics: Topics) -> dict[str, Any]:
    """One table and topic partition; intervals of offsets are half-open.

    `family` is the template of the topic's family, if it is of one of `topics`; else its name.
    `received` does not count `not_messages`; `accepted` is a part of `dead_lettered`; `faults` and
    `notes` are sentences.
    """
    return {
        "table": entry.table,
        "topic": entry.topic,
        "family": topics.family_of(entry.topic),
        "topic_id": entry.topic_id,
        "partition": entry.partition,
        "low": entry.low,
        "high": entry.high,
        "received": entry.received,
        "stored": {"count": entry.stored},
        "dead_lettered": {"count": entry.dead_lettered},
        "accepted": {"count": entry.accepted},
        "missing": spans_json(entry.missing),
        "in_flight": spans_json(entry.in_flight),
        "deleted_with_topic": spans_json(entry.deleted),
        "not_messages": entry.not_messages,
        "faults": list(entry.faults),
        "notes": list(entry.notes),
    }


def spans_json(spans: Sequence[Interval]) -> dict[str, Any]:
    """Number of offsets, and their intervals."""
    return {"count": sum(high - low for low, high in spans), "intervals": [list(s) for s in spans]}
