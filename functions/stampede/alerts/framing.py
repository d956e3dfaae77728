"""Framing: from a message to its writer schema and the bytes of its one Avro record.

Any survey may use either framing. Rubin uses Confluent's (``0x00``, a big-endian 4-byte schema
id, the record); ZTF sends an Avro object container of one record with its schema inside.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import fastavro

from stampede.alerts import container, schemas
from stampede.alerts.container import Bytes
from stampede.alerts.surveys import surveys
from stampede.alerts.surveys.survey import Survey
from stampede.errors import TooLarge, Undecodable, Unusable


class WriterSchema(NamedTuple):
    """The schema alerts were written with, in the forms that decoding needs.

    Attributes
    ----------
    survey
        The survey whose alerts have such fields.
    fields
        The record's fields by name.
    header
        Head of an Avro container of such records.
    parsed
        The schema in fastavro's form.
    """

    survey: Survey
    fields: dict[str, Any]
    header: bytes
    parsed: Any


class Framed(NamedTuple):
    """One message, taken out of its frame."""

    schema: WriterSchema
    record: Bytes


def writer_schema(schema: dict) -> WriterSchema:
    """Prepare an Avro schema.

    Raises `Undecodable` if it is not the schema of a record, `Unusable` if it is not that of a
    known survey.
    """
    try:
        simple = schemas.simplify(schema)
        fields = {field["name"]: field["type"] for field in simple["fields"]}
        parsed = fastavro.parse_schema(json.loads(json.dumps(simple)))
    except (KeyError, TypeError, AttributeError, fastavro.schema.SchemaParseException) as error:
        raise Undecodable(f"the alert's Avro schema is not one of a record: {error}") from error
    for survey in surveys():
        if survey.OWN_FIELD in fields:
            return WriterSchema(survey, fields, container.make_header(simple), parsed)
    known = [f"{survey.NAME.upper()}'s (no field {survey.OWN_FIELD})" for survey in surveys()]
    raise Unusable(f"the schema is neither {' nor '.join(known)}")


def built_in_schema(schema_id: int) -> dict:
    """The schema of a Confluent id. Raises `Undecodable` if no survey has it built in."""
    catalogues = {survey.NAME.upper(): survey.built_in_schemas() for survey in surveys()}
    for catalogue in catalogues.values():
        if schema_id in catalogue:
            return catalogue[schema_id]
    known = [f"{name}'s {min(ids)} to {max(ids)}" for name, ids in catalogues.items() if ids]
    raise Undecodable(
        f"unknown schema id {schema_id}: the built-in schemas are {', '.join(known)}; "
        "any other needs a schema registry"
    )


class Framing:
    """Takes messages out of their frames, and caches the schemas of earlier messages.

    Parameters
    ----------
    limit
        Largest record, bytes.
    registry
        Returns the schema of a Confluent id that is not built in.
    """

    def __init__(self, limit: int, registry: Callable[[int], dict] | None = None) -> None:
        self.limit = limit
        self._registry = registry
        self._by_id: dict[int, WriterSchema] = {}
        # Container headers as received, without the sync marker: few, and of few lengths.
        self._by_header: dict[bytes, tuple[WriterSchema, container.Header]] = {}
        self._lengths: list[int] = []
        self._last = b""  # the last message's header; the next message likely has the same

    def take(self, message: Bytes) -> Framed:
        """Take one message out of its frame.

        Raises
        ------
        Undecodable
            It is empty, has neither framing, is damaged, or has an unknown schema id.
        Unusable
            It is not an alert of a known survey, or not exactly one alert.
        TooLarge
            The record is larger than the limit.
        """
        if len(message) > self.limit:
            raise TooLarge(f"the alert has {len(message):,} bytes, the limit is {self.limit:,}")
        if not len(message):
            raise Undecodable("the message is empty")
        if message[0] == 0:
            return self._confluent(message)
        if bytes(message[:4]) == container.MAGIC:
            return self._container(message)
        raise Undecodable(
            "neither Confluent framing (0x00 …) nor an Avro container (Obj 0x01 …): "
            f"the message begins with 0x{bytes(message[:4]).hex()}"
        )

    def _confluent(self, message: Bytes) -> Framed:
        if len(message) < 6:
            raise Undecodable(f"Confluent framing without a record: {len(message)} bytes in all")
        schema_id = int.from_bytes(message[1:5], "big")
        schema = self._by_id.get(schema_id)
        if schema is None:
            schema = self._by_id[schema_id] = writer_schema(self._definition(schema_id))
        return Framed(schema, message[5:])

    def _definition(self, schema_id: int) -> dict:
        try:
            return built_in_schema(schema_id)
        except Undecodable:
            if self._registry is None:
                raise
        return self._registry(schema_id)

    def _container(self, message: Bytes) -> Framed:
        schema, header = self._header(message)
        blocks = list(container.blocks(message, header, self.limit))
        if [count for count, _ in blocks] != [1]:
            total = sum(count for count, _ in blocks)
            raise Unusable(f"the Avro container holds {total} records, an alert is exactly one")
        return Framed(schema, blocks[0][1])

    def _header(self, message: Bytes) -> tuple[WriterSchema, container.Header]:
        # Comparing 20 KB takes 1 us; a dict lookup hashes them, which takes 12.
        if self._last and bytes(message[: len(self._last)]) == self._last:
            return self._by_header[self._last]
        for length in self._lengths:
            begin = bytes(message[:length])
            if known := self._by_header.get(begin):
                self._last = begin
                return known
        header = container.read_header(message)
        schema = writer_schema(header.schema)
        if len(self._by_header) < 1000:  # otherwise a sender could fill the memory with headers
            self._by_header[bytes(message[: header.length])] = schema, header
            self._lengths = sorted({len(key) for key in self._by_header})
        return schema, header
