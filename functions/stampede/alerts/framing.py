"""Framing: from a message to its writer schema and the bytes of its one Avro record.

Any survey may use either framing. Rubin uses Confluent's (``0x00``, a big-endian 4-byte schema
id, the record); ZTF sends an Avro object container of one record with its schema inside.
"""

import io
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import islice
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa

from stampede.alerts import container, schemas
from stampede.alerts.readable import Readable, readable
from stampede.alerts.recognition import check_columns, survey_of
from stampede.alerts.schema_cache import SchemaCache, outcome
from stampede.alerts.schemas import Schema
from stampede.alerts.surveys import surveys
from stampede.alerts.surveys.survey import Survey
from stampede.errors import (
    SchemaRegistryDown,
    StampedeError,
    TooLarge,
    Undecodable,
    UnknownSurvey,
    Unusable,
)
from stampede.runtime.decompression import Bytes

PADDING = bytes(16)


class WriterSchema(NamedTuple):
    """The schema alerts were written with, in the forms that decoding needs.

    Attributes
    ----------
    survey
        The survey whose alerts have such fields.
    fields
        The types of the record's fields by name: of those that can be read.
    own
        The same of the record in `Survey.OWN_FIELD`.
    header
        Head of an Avro container of such records.
    parsed
        The schema in fastavro's form.
    left_out
        Fields that cannot be read, ``a`` or ``a.b`` (see `readable`).
    by_record
        If only fastavro can read these records, the writer's schema and that of the fields that it
        is to read; without logical types.
    columns
        The types of all fields that can be read; each may be null.
    may_differ
        Whether DataFusion may give other types than `columns`, or break its own: in schemas with an
        enum or a fixed type, or with types nested more deeply than a record of plain values, it
        gives nulls within a null record, whatever their type says. Today's schemas have neither.
    branch
        If the writer's schema is a union, the bytes before each record: the record's branch.
    """

    survey: Survey
    fields: Mapping[str, Any]
    own: Mapping[str, Any]
    header: bytes
    parsed: Any
    columns: pa.Schema
    left_out: tuple[str, ...] = ()
    by_record: tuple[Any, Any] | None = None
    may_differ: bool = False
    branch: bytes = b""


class Framed(NamedTuple):
    """One message, taken out of its frame."""

    schema: WriterSchema
    record: Bytes


def writer_schema(schema: Schema) -> WriterSchema:
    """Prepare an Avro schema: that of a record, or a union with one alert among its branches.

    Raises `Undecodable` if it is neither, `UnknownSurvey` if it is not that of a known survey.
    """
    simple = schemas.simplify(schema)
    if not isinstance(simple, list):
        if schemas.record_fields(simple, simple) is None:
            raise Undecodable(f"the alert's Avro schema is not one of a record: {str(simple)[:80]}")
        return _record_schema(schemas.full_name(schema), simple)
    branches = [schemas.alone(branch, simple) for branch in simple]
    refused = ["the schema is a union, and none of its branches is an alert"]
    for number, (branch, given) in enumerate(zip(branches, schema, strict=True)):
        if schemas.record_fields(branch, branch) is None:
            continue
        try:
            found = _record_schema(schemas.full_name(given), branch)
        except UnknownSurvey as error:
            refused.append(error.message)
        else:
            return found._replace(branch=container.varint(number))
    raise UnknownSurvey(": ".join((refused[0], refused[-1]) if refused[1:] else refused))


def _record_schema(name: str, simple: Schema) -> WriterSchema:
    """Prepare the simplified schema of a record, which its writer called `name`."""
    survey = survey_of(name, simple)
    parsed = _parsed(simple)
    found = readable(simple)
    check_columns(survey, found)
    fields = schemas.record_fields(found.schema, found.schema) or {}
    own = schemas.record_fields(fields[survey.OWN_FIELD], found.schema) or {}
    forgotten = _forgotten(survey, simple, found)
    header = container.make_header(schemas.expanded(simple) if forgotten else simple)
    by_record = None
    if found.by_record:
        given, kept = map(schemas.without_logical, (simple, found.schema))
        by_record = _parsed(given), _parsed(kept)
    return WriterSchema(
        survey,
        fields,
        own,
        header,
        parsed,
        found.columns,
        found.left_out,
        by_record,
        may_differ=_may_differ(survey, simple, found.columns),
    )


def _forgotten(survey: Survey, simple: Schema, found: Readable) -> bool:
    """Whether DataFusion may be asked for a field, and not for another that defines its types.

    Today's schemas have no such field. With all references expanded, a Rubin schema has 5 to 8 KB
    more, which DataFusion reads for every batch in 0.2 to 0.4 ms of CPU.
    """
    if found.left_out:
        return True
    names = [field["name"] for field in simple["fields"]]
    heads = survey.head_columns(dict.fromkeys(names), {})
    always = {survey.OWN_FIELD, *heads, *survey.CUTOUT_FIELDS.values()}
    seldom = [field["type"] for field in simple["fields"] if field["name"] not in always]
    defined = schemas.definitions(seldom)
    kinds = [field["type"] for field in simple["fields"] if field["name"] in always]
    return any(name in defined for kind in kinds for name in schemas.references(kind))


def _may_differ(survey: Survey, simple: Schema, columns: pa.Schema) -> bool:
    kinds = {kind["type"] for kind in schemas.definitions(simple).values()}
    types = [column.type for column in columns if column.name not in survey.HISTORY_FIELDS]
    records = [kind for kind in types if pa.types.is_struct(kind)]
    deep = any(pa.types.is_nested(field.type) for record in records for field in record)
    return bool(kinds - {"record"}) or deep or len(records) < sum(map(pa.types.is_nested, types))


def _parsed(simple: Schema) -> Any:
    """A schema in fastavro's form, of its own. Raises `Undecodable`."""
    try:
        return fastavro.parse_schema(json.loads(json.dumps(simple)))
    except (fastavro.schema.SchemaParseException, ValueError, TypeError, KeyError) as error:
        raise Undecodable(f"not an Avro schema: {str(error)[:200]}") from error


def built_in_schema(schema_id: int) -> dict[str, Any]:
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
    guard
        Entered around the preparation of each new schema; takes the size of its text, bytes. Many
        new schemas in one batch take longer than its alerts.
    """

    def __init__(
        self,
        limit: int,
        registry: Callable[[int], dict[str, Any]] | None = None,
        guard: Callable[[int], AbstractContextManager[None]] = lambda size: nullcontext(),
    ) -> None:
        self.limit = limit
        self._guard = guard
        self._registry = registry
        self._by_id: dict[int, WriterSchema | StampedeError] = {}
        self._by_text: SchemaCache[WriterSchema] = SchemaCache()
        # The last message's header without the sync marker: the next likely has the same.
        self._last = b""
        self._last_header: tuple[WriterSchema, container.Header]

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
        schema_id = _schema_id(message)
        found = self._by_id.get(schema_id)
        if found is None:
            definition = self._definition(schema_id)
            with self._guard(0):
                found = self._by_id[schema_id] = outcome(lambda: writer_schema(definition))
        if isinstance(found, StampedeError):
            raise found.anew()
        return _framed(found, message[5:])

    def replaced(self, message: Bytes, record: bytes) -> bytes:
        """A message that `take` takes, with another record of its schema in place of its own."""
        schema, _ = self.take(message)
        whole = schema.branch + record
        if message[0] == 0:
            return bytes(message[:5]) + whole
        return container.replaced(message, self._header(message)[1], whole)

    def documentation(self, message: Bytes) -> Mapping[tuple[str, ...], str]:
        """What the schema of a message says of its fields, as `schemas.documentation`.

        Raises as `take`.
        """
        return schemas.documentation(json.loads(self.schema_text(message)))

    def schema_key(self, message: Bytes) -> bytes:
        """What tells the schema of a message from others: its text, or its number."""
        is_container = bytes(message[:4]) == container.MAGIC
        return container.read_header(message).text if is_container else bytes(message[:5])

    def schema_text(self, message: Bytes) -> bytes:
        """The whole schema that the record of a message was written with: JSON. Raises as `take`.

        A container has it as its writer wrote it. Of a Confluent id that is built in it is the
        registry's, if that has the same fields: it has the documentation
        (docs/adr/0001-rubin-schemas.md).
        """
        if bytes(message[:4]) == container.MAGIC:
            return container.read_header(message).text
        schema_id = _schema_id(message)
        known = self._definition(schema_id)
        if self._registry:
            with suppress(SchemaRegistryDown, Undecodable):
                other = self._registry(schema_id)
                if schemas.simplify(other) == schemas.simplify(known):
                    known = other
        return json.dumps(known).encode()

    def contained(self, message: Bytes) -> bytes:
        """A message that `take` takes as an Avro object container; the record's bytes stay.

        One that came as a container stays as it is.
        """
        if bytes(message[:4]) == container.MAGIC:
            return bytes(message)
        head = container.make_header(self._definition(_schema_id(message)))
        return b"".join([head, *container.make_blocks([[message[5:]]])])

    def _definition(self, schema_id: int) -> dict[str, Any]:
        try:
            return built_in_schema(schema_id)
        except Undecodable:
            if self._registry is None:
                raise
        return self._registry(schema_id)

    def _container(self, message: Bytes) -> Framed:
        schema, header = self._header(message)
        first = list(islice(container.blocks(message, header, self.limit), 2))
        if [count for count, _ in first] != [1]:
            total = sum(count for count, _ in first)
            more = " or more" if len(first) > 1 else ""
            raise Unusable(
                f"the Avro container holds {total} records{more}, an alert is exactly one"
            )
        return _framed(schema, first[0][1])

    def _header(self, message: Bytes) -> tuple[WriterSchema, container.Header]:
        # Comparing 20 KB takes 1 us; a digest of them takes 20.
        if self._last and bytes(message[: len(self._last)]) == self._last:
            return self._last_header
        header = container.read_header(message)
        schema = self._by_text.get(header.text, lambda: self._prepared(header))
        self._last, self._last_header = bytes(message[: header.length]), (schema, header)
        return schema, header

    def _prepared(self, header: container.Header) -> WriterSchema:
        with self._guard(len(header.text)):
            return writer_schema(header.schema)


def _schema_id(message: Bytes) -> int:
    """The number of its schema in a message with Confluent's framing."""
    return int.from_bytes(message[1:5], "big")


def _framed(schema: WriterSchema, record: Bytes) -> Framed:
    """A record without the number of its branch. Raises `Undecodable` if that is another."""
    if schema.branch:
        if bytes(record[: len(schema.branch)]) != schema.branch:
            raise Undecodable("the schema is a union, and the record of another branch than alerts")
        record = record[len(schema.branch) :]
    return Framed(schema, record)


def whole_record(record: Bytes, writer: Schema, reader: Schema | None = None) -> Any:
    """One record, decoded by fastavro, that takes all of the bytes. Raises `Undecodable`."""
    found, left = _decoded(record, writer, reader)
    if left:
        raise Undecodable(f"{left:,} bytes are left over after the end of the record")
    return found


def start_of_record(record: Bytes, writer: Schema, reader: Schema | None = None) -> Any:
    """As `whole_record`, where `writer` has only the fields that the record begins with."""
    found, _ = _decoded(record, writer, reader)
    return found


def _decoded(record: Bytes, writer: Schema, reader: Schema | None) -> tuple[Any, int]:
    """What fastavro decodes, and how many bytes are left. Raises `Undecodable`.

    A skip does not notice the end of the bytes, so padding follows them: if the reader ends within
    the padding, the record is cut off.
    """
    data = io.BytesIO(bytes(record) + PADDING)
    try:
        found = fastavro.schemaless_reader(data, writer, reader)  # noqa: TID251  # asks below
    except Exception as error:  # fastavro raises many types for bad bytes
        reason = str(error)[:200] or type(error).__name__
        raise Undecodable(f"the bytes do not fit the schema: {reason}") from error
    left = len(record) - data.tell()
    if left < 0:
        raise Undecodable("the record is cut off")
    return found, left
