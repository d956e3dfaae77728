"""Avro schemas, reduced to what decoding needs.

The bytes of a message do not depend on documentation, defaults and namespaces, so these are left
out. DataFusion does not resolve names with a namespace.
"""

import json
from functools import cache
from itertools import count
from typing import Any

import fastavro

from stampede.errors import Undecodable

Schema = Any  # an Avro schema as JSON has it: a name, a list (a union) or a dict

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
LOGICAL = ("logicalType", "precision", "scale")


def parsed(schema: Schema) -> Schema:
    """`schema` in the form that fastavro's readers and writers take; parsed only once."""
    return _parsed(json.dumps(schema))


@cache
def _parsed(text: str) -> Schema:
    return fastavro.parse_schema(json.loads(text))


def simplify(schema: Schema) -> Schema:
    """The same schema reduced to names and types, with simple names.

    Both schemas read the same bytes. Two types whose names differ only in their namespace stay
    two types: the second gets a suffix (``cutout``, ``cutout_2``).

    Raises `Undecodable` if `schema` is not an Avro schema. It may come from anybody.
    """
    try:
        return _Simplifier().reduce(schema, namespace="")
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Undecodable(f"not an Avro schema: {error!r}") from error


class _Simplifier:
    """Reduces one schema; `names` holds the simple names given so far, by full name."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def reduce(self, schema: Schema, namespace: str) -> Schema:
        match schema:
            case str():
                return schema if schema in PRIMITIVES else self.refer(schema, namespace)
            case list():
                return [self.reduce(branch, namespace) for branch in schema]
            case {"type": "array", "items": items}:
                return {"type": "array", "items": self.reduce(items, namespace)}
            case {"type": "map", "values": values}:
                return {"type": "map", "values": self.reduce(values, namespace)}
            case {"type": "record" | "error" | "enum" | "fixed", "name": _}:
                return self.define(schema, namespace)
            case {"type": str() as primitive} if primitive in PRIMITIVES:
                logical = {key: schema[key] for key in LOGICAL if key in schema}
                return {"type": primitive, **logical} if logical else primitive
            case {"type": inner}:
                return self.reduce(inner, namespace)
        raise Undecodable(f"not an Avro schema: {str(schema)[:80]}")

    def define(self, schema: dict, namespace: str) -> Schema:
        full = full_name(schema["name"], schema.get("namespace", namespace))
        if full in self.names:  # the writer defined it twice: the first definition counts
            return self.names[full]
        self.names[full] = simple = self.free_name(full.rpartition(".")[2])
        namespace = full.rpartition(".")[0]
        reduced: dict[str, Any] = {"type": schema["type"], "name": simple}
        if schema["type"] in ("record", "error"):
            reduced["type"] = "record"
            reduced["fields"] = [
                {"name": field["name"], "type": self.reduce(field["type"], namespace)}
                for field in schema["fields"]
            ]
        reduced |= {key: schema[key] for key in ("symbols", "size", *LOGICAL) if key in schema}
        return reduced

    def refer(self, name: str, namespace: str) -> str:
        for full in (full_name(name, namespace), name):
            if full in self.names:
                return self.names[full]
        raise Undecodable(f"the schema refers to {name!r}, which it does not define before")

    def free_name(self, simple: str) -> str:
        taken = set(self.names.values())
        names = (simple if i == 1 else f"{simple}_{i}" for i in count(1))
        return next(name for name in names if name not in taken)


def full_name(name: str, namespace: str) -> str:
    """Full name of a type. A dotted name is already full (Avro specification, "Names")."""
    return f"{namespace}.{name}" if namespace and "." not in name else name
