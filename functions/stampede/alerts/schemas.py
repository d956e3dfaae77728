"""Avro schemas, reduced to what decoding needs, and bounded.

The bytes of a message do not depend on documentation, defaults and namespaces, so these are left
out. DataFusion does not resolve names with a namespace.

A schema may come from anybody, and a small one can cost without bound: types within types, a type
that contains itself, types that double with each level, items of no bytes of which a message may
claim any number. Such schemas are refused before anything else reads them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any, NamedTuple

from stampede.errors import Undecodable

Schema = Any  # an Avro schema as JSON has it: a name, a list (a union) or a dict

# Fewest bytes that a value of each primitive type takes.
PRIMITIVES = {
    **{"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8},
    **{"bytes": 1, "string": 1},
}
# Logical types that are kept. Values of all others are read as the type that they are written as:
# Parquet has no durations and no decimals of 80 digits, and readers refuse a time of 25 o'clock.
LOGICAL = ("timestamp-millis", "timestamp-micros", "timestamp-nanos")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # Avro specification, "Names"

# The largest real schema has 7 levels and 2,516 types within types; texts have up to 190 KB.
MOST_BYTES = 1 << 20
MOST_LEVELS = 32
MOST_TYPES = 10_000
MOST_FIXED = 1 << 20
MOST_DOC, MOST_UNIT = 500, 50  # characters that are shown of a field's documentation


def parsed(schema: Schema) -> Schema:
    """`schema` in the form that fastavro's readers and writers take; parsed only once."""
    return _parsed(json.dumps(schema))


@cache
def _parsed(text: str) -> Schema:
    import fastavro  # the read service starts without it

    return fastavro.parse_schema(json.loads(text))


def read_json(text: bytes) -> Schema:
    """The schema in a JSON text. Raises `Undecodable`."""
    if len(text) > MOST_BYTES:
        raise Undecodable(f"the Avro schema has {len(text):,} bytes, the limit is {MOST_BYTES:,}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"the Avro schema is not readable JSON: {error}") from error


def simplify(schema: Schema) -> Schema:
    """The same schema reduced to names and types, with simple names.

    Both schemas read the same bytes. Two types whose names differ only in their namespace stay
    two types: the second gets a suffix (``cutout``, ``cutout_2``). Avro forbids two fields of one
    name in a record, but WINTER's schema has some: the last keeps the name, as for fastavro, and
    those before get a suffix.

    Raises `Undecodable` if `schema` is not an Avro schema, or is larger than any alert needs. It
    may come from anybody.
    """
    try:
        return _Simplifier().reduce(schema, namespace="")[0]
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Undecodable(f"not an Avro schema: {error!r}") from error


def distinct_names(names: Sequence[str]) -> list[str]:
    """The names, with a number after each that comes again later."""
    if len({*names}) == len(names):
        return [*names]
    last = {name: at for at, name in enumerate(names)}
    taken, numbers = {*names}, dict.fromkeys(names, 2)
    found = []
    for at, name in enumerate(names):
        new = name
        while at != last[name] and new in taken:
            new = f"{name}_{numbers[name]}"
            numbers[name] += 1
        taken.add(new)
        found.append(new)
    return found


def alone(branch: Schema, union: Sequence[Schema]) -> Schema:
    """A branch of a simplified union, with the types that it takes from the other branches."""
    return _inlined(branch, definitions(union), set())


def expanded(schema: Schema) -> Schema:
    """A simplified schema with a definition, under a new name, in place of each reference.

    DataFusion forgets the types that a field defines if it is not asked for the field.
    """
    types, numbers = definitions(schema), count(2)

    def another(name: str) -> str:
        return next(new for n in numbers if (new := f"{name}_{n}") not in types)

    def expand(kind: Schema) -> Schema:
        if isinstance(kind, list):
            return [expand(branch) for branch in kind]
        if isinstance(kind, str):
            return expand({**types[kind], "name": another(kind)}) if kind in types else kind
        new = {key: expand(kind[key]) if key in ("items", "values") else kind[key] for key in kind}
        if "fields" in kind:
            fields = kind["fields"]
            new["fields"] = [{**field, "type": expand(field["type"])} for field in fields]
        return new

    return expand(schema)


def without_logical(schema: Schema) -> Schema:
    """A simplified schema without logical types."""
    return json.loads(
        json.dumps(schema),
        object_hook=lambda kind: {key: kind[key] for key in kind if key != "logicalType"},
    )


def definitions(schema: Schema) -> dict[str, dict[str, Any]]:
    """The named types of a simplified schema, by name."""
    return {each["name"]: each for each in _named(schema)}


def references(schema: Schema) -> set[str]:
    """The names that stand for types within a simplified schema, of primitive types too."""
    own = {schema} if isinstance(schema, str) else set()
    return own.union(*map(references, _parts(schema)))


def record_fields(kind: Schema, schema: Schema) -> Mapping[str, Schema] | None:
    """The fields of a record type, or of the one in a union; None if `kind` is no record.

    Parameters
    ----------
    kind
        A type within `schema`, both simplified.
    """
    for branch in kind if isinstance(kind, list) else [kind]:
        if isinstance(branch, str) and branch not in PRIMITIVES:
            branch = next((each for each in _named(schema) if each["name"] == branch), branch)
        if isinstance(branch, dict) and branch["type"] == "record":
            return {field["name"]: field["type"] for field in branch["fields"]}
    return None


def full_name(schema: Schema) -> str:
    """The full name of a record's schema; empty if it has none. It may hold any character."""
    if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
        return ""
    namespace = schema.get("namespace")
    return _full_name(schema["name"], namespace if isinstance(namespace, str) else "")


def documentation(schema: Schema) -> dict[tuple[str, ...], str]:
    """What a schema that `simplify` takes says of each field: of ``a.b`` under ``("a", "b")``.

    That is the field's ``doc``, and its ``unit`` if it has one. Fields of items of arrays and of
    values of maps are left out.
    """
    found: dict[tuple[str, ...], str] = {}
    _document(schema, "", (), {}, found)
    return found


def _document(
    kind: Schema,
    namespace: str,
    path: tuple[str, ...] | None,
    types: dict[str, tuple[Schema, str]],
    found: dict[tuple[str, ...], str],
) -> None:
    """Find what a type says of its fields; of one without a path only the types that it defines."""
    match kind:
        case str():
            known = types.get(_full_name(kind, namespace)) or types.get(kind)
            if known and path is not None:
                _document(*known, path, types, found)
        case list():
            for branch in kind:
                _document(branch, namespace, path, types, found)
        case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
            _document(inner, namespace, None, types, found)
        case {"type": "enum" | "fixed"}:
            return
        case {"type": "record" | "error", "name": str(name)}:
            full = _full_name(name, kind.get("namespace", namespace))
            kind, namespace = types.setdefault(full, (kind, namespace))
            for field in kind["fields"]:
                own = None if path is None else (*path, field["name"])
                if own and (text := _text_of(field)):
                    found.setdefault(own, text)
                _document(field["type"], full.rpartition(".")[0], own, types, found)
        case {"type": inner}:
            _document(inner, namespace, path, types, found)


def _text_of(field: dict[str, Any]) -> str:
    doc, unit = (field.get(key) for key in ("doc", "unit"))
    text = " ".join(doc.split())[:MOST_DOC] if isinstance(doc, str) else ""
    if isinstance(unit, str) and unit.strip() and f"[{unit}]" not in text:
        text = f"{text} [{unit.strip()[:MOST_UNIT]}]".strip()
    return text


class Size(NamedTuple):
    """The size of a type: types within it, levels of types, fewest bytes of a value."""

    types: int
    levels: int
    least: int


class _Simplifier:
    """Reduces one schema; `names` holds the simple names given so far, by full name."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.sizes: dict[str, Size | None] = {}  # by simple name; None while it is being read
        self.level = 0

    def reduce(self, schema: Schema, namespace: str) -> tuple[Schema, Size]:
        self.level += 1
        if self.level > MOST_LEVELS:
            raise Undecodable(f"the Avro schema has more than {MOST_LEVELS} levels")
        reduced, size = self.type_of(schema, namespace)
        self.level -= 1
        if size.types > MOST_TYPES:
            raise Undecodable(f"the Avro schema holds more than {MOST_TYPES:,} types")
        if self.level + size.levels > MOST_LEVELS:
            raise Undecodable(f"the Avro schema has more than {MOST_LEVELS} levels")
        return reduced, size

    def type_of(self, schema: Schema, namespace: str) -> tuple[Schema, Size]:
        match schema:
            case str() if schema in PRIMITIVES:
                return schema, Size(1, 1, PRIMITIVES[schema])
            case str():
                return self.refer(schema, namespace)
            case list():
                branches = [self.reduce(branch, namespace) for branch in schema]
                return [branch for branch, _ in branches], self.sum(branches, least=1)
            case {"type": "array", "items": items}:
                item = self.reduce(items, namespace)
                if not item[1].least:
                    raise Undecodable("the Avro schema has an array of items that take no bytes")
                return {"type": "array", "items": item[0]}, self.sum([item], least=1)
            case {"type": "map", "values": values}:
                value = self.reduce(values, namespace)
                return {"type": "map", "values": value[0]}, self.sum([value], least=1)
            case {"type": "record" | "error" | "enum" | "fixed", "name": str()}:
                return self.define(schema, namespace)
            case {"type": str() as primitive} if primitive in PRIMITIVES:
                logical = _logical(schema)
                size = Size(1, 1, PRIMITIVES[primitive])
                return ({"type": primitive, **logical} if logical else primitive), size
            case {"type": inner}:
                return self.reduce(inner, namespace)
        raise Undecodable(f"not an Avro schema: {str(schema)[:80]}")

    def define(self, schema: dict[str, Any], namespace: str) -> tuple[Schema, Size]:
        full = _full_name(schema["name"], schema.get("namespace", namespace))
        if full in self.names:  # the writer defined it twice: the first definition counts
            return self.refer(full, "")
        simple = self.free_name(full.rpartition(".")[2])
        self.names[full], self.sizes[simple] = simple, None
        namespace = full.rpartition(".")[0]
        reduced: dict[str, Any] = {"type": schema["type"], "name": simple}
        if schema["type"] in ("record", "error"):
            reduced["type"] = "record"
            for field in schema["fields"]:
                if not _NAME.fullmatch(field["name"]):
                    raise Undecodable(f"the Avro schema has a field named {field['name'][:80]!r}")
            fields = [self.reduce(field["type"], namespace) for field in schema["fields"]]
            names = distinct_names([field["name"] for field in schema["fields"]])
            reduced["fields"] = [
                {"name": name, "type": kind} for name, (kind, _) in zip(names, fields, strict=True)
            ]
            size = self.sum(fields, least=sum(size.least for _, size in fields))
        elif schema["type"] == "enum":
            reduced["symbols"] = [str(symbol) for symbol in schema["symbols"]]
            size = Size(1 + len(reduced["symbols"]), 1, 1)
        else:
            length = schema["size"]
            if type(length) is not int or not 0 <= length <= MOST_FIXED:
                raise Undecodable(f"the Avro schema has a fixed type of size {str(length)[:20]}")
            reduced["size"] = length
            size = Size(1, 1, length)
        self.sizes[simple] = size
        return reduced, size

    def refer(self, name: str, namespace: str) -> tuple[str, Size]:
        for full in (_full_name(name, namespace), name):
            if full in self.names:
                size = self.sizes[self.names[full]]
                if size is None:
                    raise Undecodable(f"the Avro schema's type {name[:80]!r} contains itself")
                return self.names[full], size
        raise Undecodable(f"the schema refers to {name[:80]!r}, which it does not define before")

    def sum(self, parts: Sequence[tuple[Schema, Size]], least: int) -> Size:
        sizes = [size for _, size in parts]
        levels = max((size.levels for size in sizes), default=0)
        return Size(1 + sum(size.types for size in sizes), 1 + levels, least)

    def free_name(self, simple: str) -> str:
        if len(self.sizes) >= MOST_TYPES // 10:  # so that the search below stays short
            raise Undecodable(f"the Avro schema defines more than {MOST_TYPES // 10:,} types")
        names = (simple if i == 1 else f"{simple}_{i}" for i in count(1))
        return next(name for name in names if name not in self.sizes)


def _logical(schema: dict[str, Any]) -> dict[str, Any]:
    kept = schema["type"] == "long" and schema.get("logicalType") in LOGICAL
    return {"logicalType": schema["logicalType"]} if kept else {}


def _full_name(name: str, namespace: str) -> str:
    """Full name of a type. A dotted name is already full (Avro specification, "Names")."""
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _parts(schema: Schema) -> list[Schema]:
    """The types directly within a simplified type."""
    if isinstance(schema, list):
        return schema
    if not isinstance(schema, dict):
        return []
    inner = [schema[key] for key in ("items", "values") if key in schema]
    return inner + [field["type"] for field in schema.get("fields", ())]


def _named(schema: Schema) -> list[dict[str, Any]]:
    """All definitions of named types within a simplified schema."""
    own = [schema] if isinstance(schema, dict) and "name" in schema else []
    return own + [each for part in _parts(schema) for each in _named(part)]


def _inlined(schema: Schema, definitions: Mapping[str, Schema], seen: set[str]) -> Schema:
    """`schema` with a definition at the first use of each name."""
    if isinstance(schema, list):
        return [_inlined(part, definitions, seen) for part in schema]
    if isinstance(schema, str):
        if schema in seen or schema not in definitions:
            return schema
        return _inlined(definitions[schema], definitions, seen)
    if "name" in schema:
        if schema["name"] in seen:
            return schema["name"]
        seen.add(schema["name"])
    new = dict(schema)
    for key in ("items", "values"):
        if key in schema:
            new[key] = _inlined(schema[key], definitions, seen)
    if "fields" in schema:
        new["fields"] = [
            {**field, "type": _inlined(field["type"], definitions, seen)}
            for field in schema["fields"]
        ]
    return new
