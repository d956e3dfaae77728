"""Messages that would harm a decoder without bounds, and alerts of surveys not known here."""

import io
import json
from collections.abc import Callable

import fastavro

from stampede.alerts.container import MAGIC, SYNC, varint
from tests.support.alerts import made_alerts


def container(schema: object, record: bytes = b"", text: bytes | None = None) -> bytes:
    """A container of one record, with any schema."""
    text = json.dumps(schema).encode() if text is None else text
    head = varint(1) + varint(len(b"avro.schema")) + b"avro.schema" + varint(len(text)) + text
    return MAGIC + head + varint(0) + SYNC + varint(1) + varint(len(record)) + record + SYNC


def record_of_ztf() -> bytes:
    """The Avro bytes of one ZTF alert, without a container."""
    out = io.BytesIO()
    schema = fastavro.parse_schema(json.loads(json.dumps(made_alerts.ztf_schema())))
    fastavro.schemaless_writer(out, schema, made_alerts.ztf_record())
    return out.getvalue()


def with_field(kind: object, data: bytes, name: str = "more") -> bytes:
    """A whole ZTF alert whose schema has one more field, at its end."""
    schema = made_alerts.ztf_schema()
    schema = schema | {"fields": [*schema["fields"], {"name": name, "type": kind}]}
    return container(schema, record_of_ztf() + data)


def array_of(items: object, count: int = 1 << 60) -> bytes:
    return with_field({"type": "array", "items": items}, varint(count) + varint(0))


def many_types(number: int = 26_000) -> bytes:
    types = [made_alerts.row_type(f"n{n}.t", {}) for n in range(number)]
    return with_field(made_alerts.row_type("x", {f"f{n}": t for n, t in enumerate(types)}), b"")


def doubling_types(levels: int = 28) -> bytes:
    """Each type holds the one before it twice: 2 ** levels values of no bytes."""
    kind: object = "null"
    for level in range(levels):
        kind = made_alerts.row_type(f"t{level}", {"a": kind, "b": f"t{level - 1}"} if level else {})
    return with_field(kind, b"")


def deep_schema(levels: int = 5_000) -> bytes:
    nested = b'{"type":"array","items":' * levels + b'"int"' + b"}" * levels
    return container(None, b"\0", text=nested)


def deep_record(levels: int = 5_000) -> bytes:
    row = '{"type":"record","name":"r%d","fields":[{"name":"a","type":'
    text = "".join(row % n for n in range(levels)) + '"int"' + "}]}" * levels
    return container(None, b"\0", text=text.encode())


def recursive() -> bytes:
    node = made_alerts.row_type("node", {"next": ["null", "node"]})
    return with_field(node, b"\x02" * 100_000 + b"\0")


def long_schema() -> bytes:
    return container(made_alerts.ztf_schema() | {"doc": "x" * (2 << 20)}, record_of_ztf())


def many_entries() -> bytes:
    return MAGIC + varint(1 << 40) + varint(0) * 1_000_000


def empty_blocks() -> bytes:
    alert = made_alerts.ztf_alert()
    return alert + (varint(0) + varint(0) + alert[-16:]) * 100_000


HOSTILE: dict[str, Callable[[], bytes]] = {
    "2^60 nulls": lambda: array_of("null"),
    "2^60 empty records": lambda: array_of(made_alerts.row_type("none", {})),
    "2^60 empty fixed": lambda: array_of({"type": "fixed", "name": "none", "size": 0}),
    "2^60 floats": lambda: array_of("float"),
    "2^60 fixed": lambda: array_of({"type": "fixed", "name": "four", "size": 4}),
    "2^60 records": lambda: array_of(made_alerts.row_type("x", {"a": "double"})),
    "2^60 unions": lambda: array_of(["null", "long"]),
    "2^60 maps": lambda: with_field({"type": "map", "values": "null"}, varint(1 << 60)),
    "26,000 types": many_types,
    "10,000 types": lambda: many_types(10_000),
    "types that double": doubling_types,
    "5,000 levels": deep_schema,
    "5,000 records": deep_record,
    "a type in itself": recursive,
    "a schema of 2 MB": long_schema,
    "2^40 entries": many_entries,
    "100,000 blocks": empty_blocks,
    "huge fixed": lambda: with_field({"type": "fixed", "name": "f", "size": 1 << 60}, b""),
    "a lone surrogate": lambda: with_field(["null", "\ud800"], b"\0"),
    "a name that is none": lambda: with_field("int", b"\2", name="\ud800"),
    "a field of 5,000 digits": lambda: container(None, text=b'{"type": ' + b"9" * 5000 + b"}"),
}
