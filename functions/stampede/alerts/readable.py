"""Which fields of a survey's schema can be read and stored, and in which Arrow types.

A schema may evolve, and Avro has types that Parquet has not. A field of such a type is left out of
the columns by its name; the packet keeps it. Everything else of the alert is stored as if the field
were not there.

The types with no column: a union of more than null and one type, and types whose values take no
bytes (null, an empty record, a fixed type of size 0), also as the items of arrays and maps.

DataFusion reads a union wrongly if named types are among its branches, without a word. It skips any
top-level field that is not asked for, but reads nested records as a whole. So a schema in which
such a type lies deeper is not for DataFusion: fastavro reads its records, one by one.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from stampede.alerts import schemas
from stampede.alerts.schemas import Schema

_PRIMITIVES: dict[str, pa.DataType] = {
    **{"boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64()},
    **{"float": pa.float32(), "double": pa.float64()},
    **{"bytes": pa.binary(), "string": pa.string()},
}
_INSTANTS = {  # as DataFusion names the zone
    "timestamp-millis": pa.timestamp("ms", "+00:00"),
    "timestamp-micros": pa.timestamp("us", "+00:00"),
    "timestamp-nanos": pa.timestamp("ns", "+00:00"),
}
UNREAD = pa.month_day_nano_interval()  # stands for a type that cannot be read
MOST_BRANCHES = 100  # of a union that DataFusion skips; it numbers them in 7 bits


class Readable(NamedTuple):
    """What can be read of records of one schema.

    Attributes
    ----------
    schema
        The schema without what cannot be read, for fastavro's readers.
    columns
        The same, for Arrow.
    all_columns
        The same with the fields that cannot be read, which have the type `UNREAD`.
    left_out
        The fields that cannot be read, ``a`` or ``a.b``.
    by_record
        Whether only fastavro can read these records, one by one.
    """

    schema: Schema
    columns: pa.Schema
    all_columns: pa.Schema
    left_out: tuple[str, ...]
    by_record: bool


def readable(schema: Schema) -> Readable:
    """What can be read of the records of a simplified schema."""
    choice = _Choice(schema)
    found = choice.record(schema, "")
    return Readable(
        found.avro,
        pa.schema(_read(found.arrow)),
        pa.schema(found.arrow),
        tuple(choice.left_out),
        choice.most_branches > MOST_BRANCHES or any("." in name for name in choice.left_out),
    )


class _Kind(NamedTuple):
    """A type that can be read: of Avro, of Arrow, and whether its values may be null."""

    avro: Schema
    arrow: pa.DataType
    null: bool = False


class _Choice:
    """Walks one schema. References are followed, so that each field has its own name."""

    def __init__(self, schema: Schema) -> None:
        self._types = schemas.definitions(schema)
        self._defined: set[str] = set()  # the named types that the result defines so far
        self.left_out: list[str] = []
        self.most_branches = 0

    def kind(self, kind: Schema, path: str) -> _Kind | None:
        if isinstance(kind, list):
            return self.union(kind, path)
        if isinstance(kind, str):
            if kind in self._types:
                return self.named(self._types[kind], path)
            arrow = _PRIMITIVES.get(kind)
            return _Kind(kind, arrow) if arrow else None
        if kind["type"] == "array":
            item = self.kind(kind["items"], path)
            field = item and pa.field("item", item.arrow, item.null)
            return item and _Kind({**kind, "items": item.avro}, pa.list_(field))
        if kind["type"] == "map":
            value = self.kind(kind["values"], path)
            field = value and pa.field("value", value.arrow, True)
            return value and _Kind({**kind, "values": value.avro}, pa.map_(pa.string(), field))
        if kind["type"] in ("record", "enum", "fixed"):
            return self.named(kind, path)
        instant = _INSTANTS.get(kind.get("logicalType", ""))
        arrow = instant if instant and kind["type"] == "long" else _PRIMITIVES[kind["type"]]
        return _Kind(kind, arrow)

    def union(self, branches: list[Schema], path: str) -> _Kind | None:
        self.most_branches = max(self.most_branches, len(branches))
        others = [branch for branch in branches if branch != "null"]
        if len(branches) != 2 or len(others) != 1:
            return None
        found = self.kind(others[0], path)
        if found is None:
            return None
        both = [branch if branch == "null" else found.avro for branch in branches]
        return _Kind(both, found.arrow, null=True)

    def named(self, kind: Mapping[str, Any], path: str) -> _Kind | None:
        found: _Kind | None
        if kind["type"] == "record":
            record = self.record(kind, f"{path}.")
            found = record if record.avro["fields"] else None
        elif kind["type"] == "enum":
            found = _Kind(kind, pa.string())  # DataFusion makes it a dictionary
        else:
            found = _Kind(kind, pa.binary(kind["size"])) if kind["size"] else None
        if found is None:
            return None
        if kind["name"] in self._defined:
            return found._replace(avro=kind["name"])
        self._defined.add(kind["name"])
        return found

    def record(self, record: Mapping[str, Any], prefix: str) -> _Kind:
        fields, types = [], []
        for field in record["fields"]:
            name = field["name"]
            found = self.kind(field["type"], prefix + name)
            if found is None:
                within = f"{prefix}{name}."
                self.left_out = [each for each in self.left_out if not each.startswith(within)]
                self.left_out.append(prefix + name)
                types.append(pa.field(name, UNREAD))
            else:
                fields.append({**field, "type": found.avro})
                types.append(pa.field(name, found.arrow, found.null))
        return _Kind({**record, "fields": fields}, pa.struct(types))


def _read(kind: pa.DataType) -> pa.DataType:
    """An Arrow type without the fields that cannot be read.

    All others may be null: those of a record that is null are, when Arrow makes it of Python.
    """
    if pa.types.is_struct(kind):
        fields = [field for field in kind if field.type != UNREAD]
        return pa.struct([pa.field(field.name, _read(field.type)) for field in fields])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("item", _read(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _read(kind.item_type))
    return kind
