"""Records of stored messages, decoded one at a time by fastavro, in threads.

The functions decode batches with DataFusion, which takes memory and a file. Here somebody waits for
one message: fastavro takes a few milliseconds for one with 250 history rows.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from stampede.alerts.framing import (
    Framed,
    Framing,
    WriterSchema,
    start_of_record,
    whole_record,
)
from stampede.alerts.schemas import Schema
from stampede.config.settings import Settings
from stampede.errors import Damaged, SchemaRegistryDown, TooLarge
from stampede.events.kafka.schema_registry import schemas_of
from stampede.lookup.errors import BadParameter
from stampede.runtime.decompression import Bytes

T = TypeVar("T")

REGISTRY_SECONDS = 1.0  # somebody waits for the response
MOST_BYTES = 2 << 20
"""Most bytes of a record that fastavro decodes here, with the places of its images.

272 KB of tiny points make 4.3 MB of JSON in 0.24 s. A real alert with 1,037 points has 0.5 MB.
"""
MOST = 64  # plans kept: one for each schema and choice of fields; and documentations

Documentation: TypeAlias = Mapping[tuple[str, ...], str]
"""What a schema says of a field, by the names on the way to it."""


class Plan(NamedTuple, Generic[T]):
    """How the records of one schema are read.

    Attributes
    ----------
    writer
        The schema of the record, or that of the fields that it begins with.
    reader
        The schema of the fields that are wanted; None if these are all of `writer`.
    whole
        Whether `writer` has all fields.
    convert
        Makes the result of a decoded record, which it may change.
    """

    writer: Schema
    reader: Schema | None
    whole: bool
    convert: Callable[[dict[str, Any]], T]


MakePlan: TypeAlias = Callable[[WriterSchema, frozenset[str]], Plan[T]]
"""Makes the plan for a schema and a choice of fields. May raise `BadParameter`."""


@contextmanager
def _decoding() -> Iterator[None]:
    """Raise `Damaged` for bytes that are no alert."""
    try:
        yield
    except (SchemaRegistryDown, TooLarge, BadParameter):
        raise
    except Exception as error:  # fastavro raises many types for bad bytes
        raise Damaged(f"the stored alert cannot be decoded: {error!r:.200}") from error


class StoredRecords:
    """Decodes messages. Safe to share between threads.

    Each thread has a `Framing`: it remembers the message before, and may ask the registry.
    """

    def __init__(self, settings: Settings) -> None:
        self._limit = settings.max_alert_bytes
        self._schema = schemas_of(settings, REGISTRY_SECONDS)
        self._of_thread = threading.local()
        self._documented: dict[bytes, Documentation] = {}
        self._plans: dict[tuple[object, bytes, frozenset[str]], Plan[Any]] = {}

    def read(self, message: Bytes, make: MakePlan[T], names: frozenset[str] = frozenset()) -> T:
        """What the plan of `make` converts a message to that was stored before.

        Raises
        ------
        Damaged
            The message is no alert.
        TooLarge
            Its record has more than `MOST_BYTES`.
        SchemaRegistryDown
            Its schema is unknown here, and the registry does not answer.
        BadParameter
            As `make`.
        """
        with _decoding():
            schema, record = self._take(message)
            plan = self._plan(schema, make, names)
            decode = whole_record if plan.whole else start_of_record
            fields: dict[str, Any] = decode(record, plan.writer, plan.reader)
        return plan.convert(fields)

    def documentation(self, message: Bytes) -> Documentation:
        """What the schema of a stored message says of its fields, as `Framing.documentation`.

        Raises `Damaged` and `SchemaRegistryDown` as `read`.
        """
        with _decoding():
            framing = self._framing()
            key = framing.schema_key(message)
            known = self._documented.get(key)
            if known is None:
                known = framing.documentation(message)
                if known or not self._schema:  # a registry may answer the next time
                    if len(self._documented) >= MOST:
                        self._documented.clear()
                    self._documented[key] = known
            return known

    def schema_text(self, message: Bytes) -> bytes:
        """The schema that a stored message was written with, as `Framing.schema_text`.

        Raises `Damaged` and `SchemaRegistryDown` as `read`.
        """
        with _decoding():
            return self._framing().schema_text(message)

    def contained(self, message: Bytes) -> bytes:
        """A stored message as an Avro object container, as `Framing.contained`.

        Raises `Damaged` and `SchemaRegistryDown` as `read`.
        """
        with _decoding():
            return self._framing().contained(message)

    def _framing(self) -> Framing:
        if not hasattr(self._of_thread, "framing"):
            self._of_thread.framing = Framing(self._limit, self._schema)
        framing: Framing = self._of_thread.framing
        return framing

    def _take(self, message: Bytes) -> Framed:
        framed = self._framing().take(message)
        if len(framed.record) > MOST_BYTES:
            raise TooLarge(f"the fields of this alert take more than {MOST_BYTES:,} bytes")
        return framed

    def _plan(self, schema: WriterSchema, make: MakePlan[T], names: frozenset[str]) -> Plan[T]:
        key = make, schema.header, names
        plan: Plan[T] | None = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= MOST:
                self._plans.clear()
            plan = self._plans[key] = make(schema, names)
        return plan
