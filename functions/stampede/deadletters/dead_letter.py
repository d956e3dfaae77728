"""A dead letter: an event that could not be stored, unchanged, and the reason.

The object ``deadletters/<table>/<digest>.parquet`` holds a batch of dead letters, one per row. Its
footer has their coverage.
"""

import base64
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa

from stampede.errors import Damaged
from stampede.events.cloudevents.event import Event, Position, coverage_of_positions
from stampede.events.cloudevents.kafka_record import extension_headers
from stampede.events.delivery.response import reason_of_response
from stampede.store.integrity.acceptances.decision import letter_name
from stampede.store.integrity.dead_letter_offsets import DEAD_LETTERS, NAMES, TABLE
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.offsets.coverage import COVERAGE
from stampede.store.parquet.checksums import open_file, read_file, write
from stampede.store.runs.run_name import digest
from stampede.store.runs.schema import TABLES

DEAD_LETTER = pa.schema(
    [
        pa.field("topic", pa.string(), True),
        pa.field("partition", pa.int32(), True),
        pa.field("offset", pa.int64(), True),
        pa.field("id", pa.string(), False, {"doc": "the event's"}),
        pa.field("source", pa.string(), False, {"doc": "the event's"}),
        pa.field("code", pa.string(), True, {"doc": "status the function answered with"}),
        pa.field("reason", pa.string(), True, {"doc": "what the function answered, for people"}),
        pa.field("attributes", pa.string(), False, {"doc": "all CloudEvent attributes, JSON"}),
        pa.field("data", pa.binary(), False, {"doc": "the alert's bytes, unchanged"}),
    ]
)
POSITION = ("topic", "partition", "offset")
ERROR = "knativeerror"  # prefix of the attributes that Knative adds to a dead letter
_KEY = re.compile(rf"{DEAD_LETTERS}({'|'.join(TABLES)})/([0-9a-f]{{32}})\.parquet")
NAMED_LETTERS = 200
"""Most letters of an object whose names are in its footer: 7 KB. Letters of 60 KB have that many in
8 MiB, the size of a merged object."""
_BATCH_ROWS = 16  # rows copied out of Arrow together; a letter may have megabytes


class DeadLetter(NamedTuple):
    """One dead letter, and the object that holds it.

    Attributes
    ----------
    table
        The table that lacks the alert.
    position
        Its topic, partition and offset in Kafka; None if it did not come from Kafka.
    attributes
        All attributes of the event, with those of the error.
    code, reason
        Status and message of the function that refused it; None if there was no response.
    """

    table: str
    position: Position | None
    attributes: dict[str, Any]
    code: str | None
    reason: str | None
    data: bytes
    object: ObjectInfo

    @property
    def event(self) -> Event:
        """The event, with the attributes of the error."""
        return Event(self.attributes, self.data)

    @property
    def id(self) -> str:
        """``table/topic/partition/offset``; without a position ``table/`` and a digest."""
        return id_of(self.table, self.position, self.attributes)

    @property
    def name(self) -> str:
        """See `name_of`."""
        return letter_name(self.id, self.data)

    @property
    def file(self) -> str | None:
        """The file that `ingest` took it from, and its place there; None for others."""
        return self.attributes.get("file")

    def brief(self, reason: str) -> str:
        """A reason in one line, without the name of the event at its beginning."""
        return " ".join(reason.removeprefix(f"{Event(self.attributes, b'')}: ").split())

    def headers(self) -> dict[str, str]:
        """HTTP headers of the event as it was before it failed; its body is `data`."""
        attributes = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.attributes.items()
            if value is not None and not name.startswith(ERROR)
        }
        content_type = attributes.pop("datacontenttype", None)
        headers = {"content-type": content_type} if content_type else {}
        return headers | extension_headers(attributes)


def id_of(table: str, position: Position | None, attributes: dict[str, Any]) -> str:
    """See `DeadLetter.id`."""
    if position:
        return f"{table}/{position.topic}/{position.partition}/{position.offset}"
    return f"{table}/{digest(attributes['source'], ' ', attributes['id'])[:12]}"


def name_of(table: str, event: Event) -> str:
    """A name that tells a letter from all others; see `letter_name`."""
    return letter_name(id_of(table, event.position, event.attributes), event.data)


def event_of(row: dict[str, Any]) -> Event:
    """The event in a row of the schema `DEAD_LETTER`."""
    return Event(json.loads(row["attributes"]), row["data"])


def table_of_key(key: str) -> str:
    """The table whose dead letters an object holds. Raises `Damaged` for any other key."""
    match = _KEY.fullmatch(key)
    if not match:
        raise Damaged(f"{key} is not the key of an object of dead letters")
    return match[1]


def write_letters(table: str, events: Sequence[Event]) -> tuple[str, bytes]:
    """Key and bytes of the Parquet object that holds these dead letters.

    The same events give the same object, in any order.
    """
    rows = sorted((row_of(event) for event in events), key=lambda row: (row["source"], row["id"]))
    return write_rows(table, pa.Table.from_pylist(rows, schema=DEAD_LETTER))


def write_rows(table: str, rows: pa.Table, sources: Sequence[str] = ()) -> tuple[str, bytes]:
    """Key and bytes of the object that holds these rows of the schema `DEAD_LETTER`.

    `sources` are the keys of the objects that held them before. They are in the bytes and so in
    the name: a purge and a merge at one time must not make an object again that the other has read
    and is about to delete.
    """
    events = [event_of(row) for row in rows.select(["attributes", "data"]).to_pylist()]
    coverage = coverage_of_positions(positions(rows), [event.skipped for event in events])
    metadata = {COVERAGE: coverage.to_json(), TABLE: table}
    if sources:
        metadata[b"stampede.sources"] = digest(*sorted(sources))
    rows = rows.combine_chunks().replace_schema_metadata(metadata)
    # Of more letters, which are small, a reader reads the bytes: the footer stays short.
    few = len(events) <= NAMED_LETTERS
    names = {NAMES.decode(): " ".join(name_of(table, event) for event in events)} if few else {}
    data = write(rows, names, compression="zstd").to_pybytes()
    return f"{DEAD_LETTERS}{table}/{digest(data)}.parquet", data


def read_rows(objects: Objects, info: ObjectInfo) -> pa.Table:
    """The rows of an object, with the schema `DEAD_LETTER`.

    Raises `NotFound`, `StoreDown`, and `Damaged` if the object is not what was stored.
    """
    table = table_of_key(info.key)
    data = objects.get(info.key)
    if not info.key.endswith(f"/{digest(data)}.parquet"):
        raise Damaged(f"{info.key} does not read as it was stored: it is damaged")
    rows = read_file(info.key, open_file(info.key, data))
    if not rows.schema.equals(DEAD_LETTER):
        raise Damaged(f"{info.key} does not have the columns of dead letters of {table}")
    return rows


def positions(rows: pa.Table) -> list[Position | None]:
    """The position in Kafka of each row; None for a row without one."""
    columns = (rows[name].to_pylist() for name in POSITION)
    return [None if row[0] is None else Position(*row) for row in zip(*columns, strict=True)]


def letters_of(rows: pa.Table, info: ObjectInfo) -> Iterator[DeadLetter]:
    """The letters of an object, sorted by position in Kafka."""
    table = table_of_key(info.key)
    rows = rows.sort_by([(name, "ascending") for name in POSITION])
    for record_batch in rows.to_batches(_BATCH_ROWS):
        batch = pa.Table.from_batches([record_batch])
        for position, row in zip(positions(batch), batch.to_pylist(), strict=True):
            attributes = json.loads(row["attributes"])
            yield DeadLetter(
                table, position, attributes, row["code"], row["reason"], row["data"], info
            )


def row_of(event: Event) -> dict[str, Any]:
    """A dead letter as a row of the schema `DEAD_LETTER`."""
    attributes = event.attributes
    topic, partition, offset = event.position or (None, None, None)
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "id": attributes["id"],
        "source": attributes["source"],
        "code": attributes.get("knativeerrorcode"),
        "reason": reason_of(attributes.get("knativeerrordata")),
        "attributes": json.dumps(attributes, sort_keys=True),
        "data": event.data,
    }


def response_of(data: str) -> str:
    """The beginning of a function's response, decoded: Knative encodes it in base64."""
    with suppress(ValueError):
        return base64.b64decode(data, validate=True).decode()
    return data


def reason_of(data: str | None) -> str | None:
    """Why a function refused an event, from `knativeerrordata`; None without data."""
    return None if data is None else reason_of_response(response_of(data))
