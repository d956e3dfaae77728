"""Avro schemas: Rubin's, built in; any other, simplified, or asked of a schema registry.

A Rubin message names its schema by a number only, ``100 * major + minor`` (11.1 is 1101).
`rubin_schemas.json` holds names and types of every published version, one line each, as
``tools/rubin_schemas.py`` wrote them. Documentation, defaults and namespaces are left out: the
bytes of a message do not depend on them, and DataFusion does not resolve names with a namespace.
"""

import copy
import json
from functools import cache
from importlib import resources
from itertools import count
from typing import Any

import fastavro
import urllib3

from stampede.errors import SchemaRegistryDown, Undecodable

Schema = Any  # an Avro schema as JSON has it: a name, a list (a union) or a dict

# Every published version of Rubin's alert schema, oldest first.
RUBIN_VERSIONS = [300, 400, 500, 600, 601, 700, 701, 702, 703, 704, 800, 900, 1000, 1100, 1101]
NEWEST_RUBIN = RUBIN_VERSIONS[-1]

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
LOGICAL = ("logicalType", "precision", "scale")


def rubin_schema(schema_id: int) -> dict:
    """Rubin's alert schema of that number; shared, so not to be changed.

    Raises `Undecodable` where no such version is built in.
    """
    try:
        return _rubin_schemas()[schema_id]
    except KeyError:
        raise Undecodable(
            f"unknown schema id {schema_id}: Rubin's schemas built in are "
            f"{RUBIN_VERSIONS[0]} to {NEWEST_RUBIN}; a newer one needs a schema registry"
        ) from None


@cache
def _rubin_schemas() -> dict[int, dict]:
    text = (
        resources.files("stampede.alerts.surveys").joinpath("rubin_schemas.json").read_text("utf-8")
    )
    return {int(schema_id): schema for schema_id, schema in json.loads(text).items()}


def parsed(schema: Schema) -> Schema:
    """`schema` as fastavro's readers and writers take it, without parsing it again each time."""
    return _parsed(json.dumps(schema))


@cache
def _parsed(text: str) -> Schema:
    return fastavro.parse_schema(json.loads(text))


def simplify(schema: Schema) -> Schema:
    """The same schema reduced to names and types, with simple names.

    The bytes of a message read the same by either. Two types whose names differ only in their
    namespace stay two types: the second gets a suffix (``cutout``, ``cutout_2``).

    Raises `Undecodable` where `schema` is not an Avro schema: it may be a stranger's.
    """
    try:
        return _Simplifier().reduce(schema, namespace="")
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Undecodable(f"not an Avro schema: {error!r}") from error


class _Simplifier:
    """Simple names given so far, by full name."""

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
        if full in self.names:  # defined twice by the writer: the first definition holds
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
    """Full name of a named type: a dotted name is one already (Avro specification, "Names")."""
    return f"{namespace}.{name}" if namespace and "." not in name else name


class SchemaRegistry:
    """A Confluent schema registry, asked for ids that are not built in.

    Parameters
    ----------
    url
        Where it answers, for example ``http://registry:8081``.
    timeout
        Seconds it has for one answer.
    """

    def __init__(self, url: str, timeout: float = 5.0) -> None:
        self.url = url.rstrip("/")
        self.http = urllib3.PoolManager(timeout=timeout, retries=False)
        self.schemas: dict[int, Schema] = {}

    def schema(self, schema_id: int) -> Schema:
        """The schema of that id, simplified; asked once, since a registered schema never changes.

        Raises `Undecodable` where the registry has none or not an Avro schema, and
        `SchemaRegistryDown` where it does not answer as it should.
        """
        if schema_id not in self.schemas:
            self.schemas[schema_id] = self._ask(schema_id)
        return self.schemas[schema_id]

    def _ask(self, schema_id: int) -> Schema:
        url = f"{self.url}/schemas/ids/{schema_id}"
        try:
            answer = self.http.request("GET", url)
        except urllib3.exceptions.HTTPError as error:
            raise SchemaRegistryDown(f"{url} does not answer: {error}") from error
        if answer.status == 404:
            raise Undecodable(f"unknown schema id {schema_id}: {self.url} has none of that id")
        if answer.status != 200:
            raise SchemaRegistryDown(f"{url} answered {answer.status}")
        try:
            body = answer.json()
            text, kind = body["schema"], body.get("schemaType", "AVRO")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SchemaRegistryDown(f"{url} answered no schema") from error
        if kind != "AVRO":
            raise Undecodable(f"schema id {schema_id} is {kind}, not Avro")
        try:
            schema = simplify(json.loads(text))
            fastavro.parse_schema(copy.deepcopy(schema))
        except (ValueError, fastavro.schema.SchemaParseException) as error:
            raise Undecodable(f"schema id {schema_id} is not an Avro schema: {error}") from error
        return schema
