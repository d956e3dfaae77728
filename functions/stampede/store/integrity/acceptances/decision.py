"""An operator's decision that dead letters are rightly refused, or that they are not after all.

The object ``deadletters/accepted/<table>/<digest>.parquet`` names letters, one per row. Its footer
has the rest. It is never changed and never deleted, so a letter stays accounted for when a purge
removes its bytes.
"""

import json
import re
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stampede.errors import Damaged
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.offsets.coverage import (
    COVERAGE,
    Coverage,
    Interval,
    PartitionId,
    not_messages_key,
    united,
)
from stampede.store.parquet.checksums import open_file, read_file, write
from stampede.store.runs.run_name import digest
from stampede.store.runs.schema import TABLES

ACCEPTED = "deadletters/accepted/"
DECISION = b"stampede.decision"
"""Metadata of a decision: the fields of `Decision` that are not in the rows, as JSON."""
LETTERS = pa.schema(
    [
        pa.field("letter", pa.string(), False, {"doc": "digest of the letter's id and bytes"}),
        pa.field("topic", pa.string(), True),
        pa.field("partition", pa.int32(), True),
        pa.field("offset", pa.int64(), True),
        pa.field("skipped", pa.int64(), False, {"doc": "offsets before it that are no messages"}),
        pa.field("code", pa.string(), True, {"doc": "status the function answered with"}),
    ]
)
_KEY = re.compile(rf"{ACCEPTED}({'|'.join(TABLES)})/([0-9a-f]{{32}})\.parquet")


class Decision(NamedTuple):
    """What an operator has decided about the letters in `rows`.

    Attributes
    ----------
    digest
        Its name.
    accepted
        Whether the letters are rightly refused; False withdraws that.
    at
        When, by the store's clock.
    reason
        Why, as the operator put it; may be empty.
    replaces
        Names of earlier decisions, which no longer count for these letters.
    rows
        The letters, with the schema `LETTERS`.
    """

    digest: str
    accepted: bool
    at: datetime
    reason: str
    replaces: frozenset[str]
    rows: pa.Table


def letter_name(letter_id: str, data: bytes) -> str:
    """A name that tells a letter from all others: a digest of its id and its bytes.

    Letters with one id and different bytes are different letters: a topic that was created again
    repeats its offsets.
    """
    return digest(letter_id, data)


def is_decision(key: str) -> bool:
    """Whether a key is that of a decision."""
    return _KEY.fullmatch(key) is not None


def write_decision(table: str, decision: Decision) -> tuple[str, bytes]:
    """Key and bytes of the object that holds a decision; its `digest` is not looked at.

    The same decision gives the same object, whatever the order of its rows.
    """
    fields = {
        "accepted": decision.accepted,
        "at": decision.at.isoformat(timespec="seconds"),
        "reason": decision.reason,
        "replaces": sorted(decision.replaces),
    }
    rows = decision.rows.sort_by("letter").combine_chunks()
    metadata = {
        COVERAGE: coverage_of(rows).to_json(),
        b"stampede.table": table,
        DECISION: json.dumps(fields, sort_keys=True),
    }
    data = write(rows.replace_schema_metadata(metadata), compression="zstd").to_pybytes()
    return f"{ACCEPTED}{table}/{digest(data)}.parquet", data


def read_decision(objects: Objects, info: ObjectInfo) -> Decision:
    """The decision in an object.

    Raises `NotFound`, `StoreDown`, and `Damaged` if the object is not what was stored.
    """
    named = _KEY.fullmatch(info.key)
    if not named:
        raise Damaged(f"{info.key} is not the key of a decision about dead letters")
    data = objects.get(info.key)
    if digest(data) != named[2]:
        raise Damaged(f"{info.key} does not read as it was stored: it is damaged")
    rows = read_file(info.key, open_file(info.key, data))
    try:
        fields = json.loads((rows.schema.metadata or {})[DECISION])
        return Decision(
            named[2],
            bool(fields["accepted"]),
            datetime.fromisoformat(fields["at"]),
            str(fields["reason"]),
            frozenset(fields["replaces"]),
            rows.select(LETTERS.names),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"{info.key} does not hold a decision about dead letters: {error}") from None


def coverage_of(rows: pa.Table) -> Coverage:
    """The offsets of letters in rows of the schema `LETTERS`, and those before that are skipped."""
    spans: dict[PartitionId, list[Interval]] = {}
    columns = (rows[name].to_pylist() for name in ("topic", "partition", "offset", "skipped"))
    for topic, partition, offset, skipped in zip(*columns, strict=True):
        if offset is None:
            continue
        spans.setdefault((topic, partition), []).append((offset, offset + 1))
        if skipped:
            before = max(0, offset - skipped), offset
            spans.setdefault((not_messages_key(topic), partition), []).append(before)
    return Coverage({place: united(np.array(each, np.int64)) for place, each in spans.items()})
