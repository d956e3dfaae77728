"""From a message to the schema it was written with and the bytes of its one Avro record.

Two framings are met: Rubin's, that of Confluent (``0x00``, a big-endian 4-byte schema id,
the record), and ZTF's, an Avro object container of one record with its schema inside.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import fastavro

from stampede.alerts import container, schemas
from stampede.alerts.container import Bytes
from stampede.errors import TooLarge, Undecodable, Unusable


class WriterSchema(NamedTuple):
    """The schema alerts were written with, in the forms that decoding needs.

    Attributes
    ----------
    survey
        ``lsst`` or ``ztf``, told by the fields.
    fields
        The record's fields by name.
    header
        Head of an Avro container of such records.
    parsed
        The schema as fastavro wants it.
    """

    survey: str
    fields: dict[str, Any]
    header: bytes
    parsed: Any


class Framed(NamedTuple):
    """One message, taken out of its frame."""

    schema: WriterSchema
    record: Bytes


def writer_schema(schema: dict) -> WriterSchema:
    """Prepare an Avro schema. Raises `Unusable` where no survey's alerts look like it."""
    try:
        simple = schemas.simplify(schema)
        fields = {field["name"]: field["type"] for field in simple["fields"]}
        parsed = fastavro.parse_schema(json.loads(json.dumps(simple)))
    except (KeyError, TypeError, AttributeError, fastavro.schema.SchemaParseException) as error:
        raise Undecodable(f"the alert's Avro schema is not one of a record: {error}") from error
    if "diaSource" in fields:
        survey = "lsst"
    elif "candidate" in fields:
        survey = "ztf"
    else:
        raise Unusable(
            "the schema is neither LSST's (no field diaSource) nor ZTF's (no field candidate)"
        )
    return WriterSchema(survey, fields, container.make_header(simple), parsed)


class Framing:
    """Takes messages out of their frames, and remembers every schema it has met.

    Parameters
    ----------
    limit
        Most bytes of a record.
    registry
        Asked for the schema of a Confluent id that is not built in.
    """

    def __init__(self, limit: int, registry: Callable[[int], dict] | None = None) -> None:
        self.limit = limit
        self._registry = registry
        self._by_id: dict[int, WriterSchema] = {}
        # Headers as met on the wire, without the sync marker; few, and of few lengths.
        self._by_header: dict[bytes, tuple[WriterSchema, container.Header]] = {}
        self._lengths: list[int] = []
        self._last = b""  # the header of the last one, likely the next one's too

    def take(self, message: Bytes) -> Framed:
        """Take one message apart.

        Raises
        ------
        Undecodable
            It is empty, of neither framing, damaged, or of an unknown schema id.
        Unusable
            It is no alert of a survey known here, or not exactly one.
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
            try:
                definition = schemas.rubin_schema(schema_id)
            except Undecodable:
                if self._registry is None:
                    raise
                definition = self._registry(schema_id)
            schema = self._by_id[schema_id] = writer_schema(definition)
        return Framed(schema, message[5:])

    def _container(self, message: Bytes) -> Framed:
        schema, header = self._header(message)
        found = list(container.blocks(message, header, self.limit))
        if [count for count, _ in found] != [1]:
            total = sum(count for count, _ in found)
            raise Unusable(f"the Avro container holds {total} records, an alert is exactly one")
        return Framed(schema, found[0][1])

    def _header(self, message: Bytes) -> tuple[WriterSchema, container.Header]:
        # Comparing 20 KB takes 1 us, a look-up, which hashes them, 12.
        if self._last and bytes(message[: len(self._last)]) == self._last:
            return self._by_header[self._last]
        for length in self._lengths:
            begin = bytes(message[:length])
            if known := self._by_header.get(begin):
                self._last = begin
                return known
        header = container.read_header(message)
        schema = writer_schema(header.schema)
        if len(self._by_header) < 1000:  # a stranger must not fill the memory with headers
            self._by_header[bytes(message[: header.length])] = schema, header
            self._lengths = sorted({len(key) for key in self._by_header})
        return schema, header
