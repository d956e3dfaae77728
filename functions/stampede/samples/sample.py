"""An alert out of a file, of a survey that Stampede knows or of any other."""

import tempfile
from collections.abc import Iterable
from itertools import islice
from os import urandom
from pathlib import Path
from typing import Any, NamedTuple

import fastavro

from stampede.alerts import container, schemas
from stampede.alerts.batch_decoder import BatchDecoder
from stampede.alerts.decoder import Decoder
from stampede.alerts.framing import Framing, built_in_schema, whole_record, writer_schema
from stampede.alerts.isolation import Isolation
from stampede.alerts.schemas import Schema
from stampede.errors import StampedeError, Undecodable, Unusable
from stampede.handlers.decoding import DecoderFile
from stampede.ingest.records import FileAlert

MOST_BYTES = 8 << 20
"""Most bytes of a record: fastavro makes Python's objects of all of them."""
LATEST_MJD = 1e6


class Sample(NamedTuple):
    """An alert with all that its file says of it.

    Attributes
    ----------
    name
        Its file, and its place there.
    message
        Its bytes, framed.
    framing
        How they are framed, in words.
    schema
        The schema of the record, as its writer gave it.
    whole_schema
        The writer's schema: `schema`, or the union in which it is.
    record
        The record's values by name; of fields with one name each has a name of its own.
    survey
        The survey whose alert it is; empty if of none that Stampede knows.
    refusal
        Why Stampede takes it for no alert of a survey; empty if it takes it for one.
    """

    name: str
    message: bytes
    framing: str
    schema: dict[str, Any]
    whole_schema: Schema
    record: dict[str, Any]
    survey: str
    refusal: str

    @property
    def schema_name(self) -> str:
        """The full name that the writer gave the schema; it may hold any character."""
        return schemas.full_name(self.schema)


class Verdict(NamedTuple):
    """What the functions would do with alerts.

    Attributes
    ----------
    refusals
        Of each alert why it would be refused; empty if it would be stored.
    cutouts, detections
        How many images and points of light curves would be stored of them all.
    first_point
        The first of these points by column; empty if there is none.
    """

    refusals: list[str]
    cutouts: int
    detections: int
    first_point: dict[str, Any]


def read(alert: FileAlert) -> Sample:
    """What a file says of an alert. Raises `StampedeError`, which says why it cannot be read."""
    if alert.fault:
        raise Undecodable(alert.fault)
    message = alert.data
    if not message:
        raise Undecodable("the file is empty")
    if message[0] == 0 and len(message) > 5:
        number = int.from_bytes(message[1:5], "big")
        framing, schema = f"Confluent, schema id {number}", built_in_schema(number)
        data = bytes(message[5:])
    elif message[:4] == container.MAGIC:
        header = container.read_header(message)
        framing = f"Avro object container, codec {header.codec[:40]}"
        schema, data = header.schema, _only_record(message, header)
    else:
        raise Undecodable(
            "neither an Avro container (Obj 0x01 …) nor Confluent framing (0x00 …): "
            f"it begins with 0x{bytes(message[:4]).hex()}"
        )
    own, record = _decoded(schema, data)
    survey, refusal = _recognised(schema)
    return Sample(alert.name, message, framing, own, schema, record, survey, refusal)


def judge(messages: Iterable[bytes]) -> Verdict:
    """What the functions would do with these messages."""
    messages = list(messages)
    decoder = BatchDecoder(
        Framing(MOST_BYTES),
        Decoder(DecoderFile(Path(tempfile.gettempdir()))),
        lambda: LATEST_MJD,
        urandom(12),
    )
    images, points = decoder.alerts(messages, Isolation.ALONE)
    faults = [one or other for one, other in zip(images.faults, points.faults, strict=True)]
    refusals = [fault.message if fault else "" for fault in faults]
    sent = images.rows["fits"].is_valid().to_pylist() if images.rows.num_rows else []
    first = points.rows.slice(0, 1).to_pylist()
    return Verdict(refusals, sum(sent), points.rows.num_rows, first[0] if first else {})


def _only_record(message: bytes, header: container.Header) -> bytes:
    """The record of a container. Raises `StampedeError` unless it is one."""
    found = list(islice(container.blocks(message, header, MOST_BYTES), 2))
    if [count for count, _ in found] != [1]:
        raise Unusable(f"the container holds {sum(count for count, _ in found)} records, not one")
    return bytes(found[0][1])


def _decoded(schema: Schema, data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of the record in these bytes, and its values. Raises `Undecodable`."""
    simple = schemas.simplify(schema)
    try:
        parsed = fastavro.parse_schema(simple)
    except (fastavro.schema.SchemaParseException, ValueError, TypeError, KeyError) as error:
        raise Undecodable(f"not an Avro schema: {str(error)[:200]}") from error
    found = whole_record(data, parsed)
    own = schema[container.read_varint(data, 0)[0]] if isinstance(schema, list) else schema
    if not isinstance(found, dict) or not isinstance(own, dict) or "fields" not in own:
        raise Undecodable("the file holds an Avro value that is no record")
    return own, found


def _recognised(schema: Schema) -> tuple[str, str]:
    """The survey of a schema, or why it is of none."""
    try:
        return writer_schema(schema).survey.NAME, ""
    except StampedeError as error:
        return "", error.message
