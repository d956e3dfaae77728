"""All fields of an alert as JSON: the survey's own record, without its images.

A 64-bit integer is a string, as in JSON's mapping of Protocol Buffers: a double cannot hold it, and
a field has one type. NaN and infinities are null; bytes are base64.
"""

import base64
import json
import threading
from collections.abc import Callable
from math import isfinite
from typing import Any

from stampede.alerts.framing import Framing, WriterSchema, whole_record
from stampede.alerts.schemas import Schema
from stampede.config.settings import Settings
from stampede.errors import Damaged, SchemaRegistryDown, TooLarge
from stampede.events.kafka.schema_registry import SchemaRegistry
from stampede.runtime.decompression import Bytes

Convert = Callable[[Any], Any]
MOST = 32  # converters kept: one for each schema
MOST_BYTES = 2 << 20
"""Most bytes of a record, with the places of its images.

272 KB of tiny points make 4.3 MB of JSON in 0.24 s. A real alert with 1,037 points has 0.5 MB.
"""
REGISTRY_SECONDS = 1.0  # somebody waits for the response


class AlertFields:
    """Decodes messages. Safe to share between threads."""

    def __init__(self, settings: Settings) -> None:
        registry = settings.schema_registry
        self._limit = settings.max_alert_bytes
        self._schema = SchemaRegistry(registry, REGISTRY_SECONDS).schema if registry else None
        self._of_thread = threading.local()  # a framing remembers the message before
        self._converters: dict[str, Convert] = {}

    def of(self, message: Bytes) -> dict[str, Any]:
        """The fields of a message that was stored before.

        Raises `Damaged` if it is no alert, `TooLarge` if its record has more than `MOST_BYTES`, and
        `SchemaRegistryDown`.
        """
        fields: Any
        try:
            schema, record = self._framing().take(message)
            if len(record) > MOST_BYTES:
                raise TooLarge(f"the fields of this alert take more than {MOST_BYTES:,} bytes")
            fields = whole_record(record, schema.parsed)
        except (SchemaRegistryDown, TooLarge):
            raise
        except Exception as error:  # fastavro raises many types for bad bytes
            raise Damaged(f"the stored alert cannot be decoded: {error!r:.200}") from error
        for name in schema.survey.CUTOUT_FIELDS.values():
            fields.pop(name, None)
        found: dict[str, Any] = self._converter(schema)(fields)
        return found

    def _framing(self) -> Framing:
        """The framing of this thread: none waits for another's request to the registry."""
        if not hasattr(self._of_thread, "framing"):
            self._of_thread.framing = Framing(self._limit, self._schema)
        framing: Framing = self._of_thread.framing
        return framing

    def _converter(self, schema: WriterSchema) -> Convert:
        text = schema.header.decode("latin-1")
        convert = self._converters.get(text)
        if convert is None:
            if len(self._converters) >= MOST:
                self._converters.clear()
            whole = json.loads(json.dumps(schema.parsed))
            convert = self._converters[text] = _converter(whole, {})
        return convert


def _converter(schema: Schema, names: dict[str, Convert]) -> Convert:
    """What makes JSON of a value of an Avro type; `names` are those of the named types so far."""
    if isinstance(schema, list):
        branches = [_converter(branch, names) for branch in schema if branch != "null"]
        convert = branches[0] if len(branches) == 1 else _any
        return lambda value: None if value is None else convert(value)
    if isinstance(schema, str):
        return _PRIMITIVES.get(schema) or (lambda value: names[schema](value))
    kind = schema["type"]
    if kind == "record":
        fields: dict[str, Convert] = {}
        names[schema["name"]] = convert = lambda value: {
            name: fields[name](each) for name, each in value.items()
        }
        fields |= {field["name"]: _converter(field["type"], names) for field in schema["fields"]}
        return convert
    if kind == "array":
        item = _converter(schema["items"], names)
        return lambda value: [item(each) for each in value]
    if kind == "map":
        item = _converter(schema["values"], names)
        return lambda value: {name: item(each) for name, each in value.items()}
    if kind in ("enum", "fixed"):
        names[schema["name"]] = _any
        return _any
    return _converter(kind, names)


def _any(value: Any) -> Any:
    """JSON of a value whose type says what it is."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _any(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_any(each) for each in value]
    return str(value)


_PRIMITIVES: dict[str, Convert] = {
    "null": lambda value: None,
    "boolean": bool,
    "int": lambda value: value if isinstance(value, int) else str(value),
    "long": str,
    "float": _any,
    "double": _any,
    "bytes": _any,
    "string": str,
}
