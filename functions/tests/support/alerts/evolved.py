"""Schemas that a survey may send next, and alerts of them: those of today, changed at random.

A change is harmless, and then the alert is stored as before, or it takes away or retypes a field
that Stampede reads, and then the alert is refused.
"""

import io
import json
import random
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import fastavro
from hypothesis import strategies as st

from stampede.alerts import schemas
from stampede.alerts.columns import FLAGS
from stampede.alerts.container import varint
from stampede.alerts.schemas import Schema
from stampede_local.demo import oracle
from stampede_simulator.simulator import Fields, Mix, Simulator

OWN = {"lsst": "diaSource", "ztf": "candidate"}
NEEDED = {
    "lsst": (
        *("diaSourceId", "diaObjectId", "midpointMjdTai", "psfFlux"),
        *("band", "ra", "dec"),
    ),
    "ztf": (
        *("jd", "fid", "pid", "programid", "isdiffpos", "magpsf"),
        *("sigmapsf", "ra", "dec"),
    ),
}
"""Fields of an alert's own record that it cannot do without."""
READ = {
    "lsst": {
        *NEEDED["lsst"],
        *("ssObjectId", "timeProcessedMjdTai", "timeWithdrawnMjdTai", "psfFluxErr", "visit"),
        *("scienceFlux", "scienceFluxErr", "reliability", "detector", "diaForcedSourceId"),
    },
    "ztf": {
        *NEEDED["ztf"],
        *("candid", "rcid", "rb", "drb", "diffmaglim", "procstatus", "magzpsci"),
        *("forcediffimflux", "forcediffimfluxunc", "stampData", "distnr", "magnr", "sigmagnr"),
    },
}
"""Fields that become columns of points; beside Rubin's flags."""
TOP = {
    "lsst": {"diaSource", "prvDiaSources", "prvDiaForcedSources"},
    "ztf": {"candidate", "prv_candidates", "fp_hists", "objectId", "candid"},
}
WIDER = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"]}
UNFIT = [
    *("string", "bytes", "boolean", ["double", "string"], {"type": "array", "items": "double"}),
    {"type": "map", "values": "double"},
    {"type": "record", "name": "unfit", "fields": [{"name": "value", "type": "double"}]},
    {"type": "fixed", "name": "unfit", "size": 12, "logicalType": "duration"},
]
CUTOUTS = ("cutoutScience", "cutoutTemplate", "cutoutDifference")
LEFT_OUT = object()


class Evolved(NamedTuple):
    """An alert of a changed schema.

    Attributes
    ----------
    before
        The message before the change.
    record
        Its Avro record.
    refused
        A word that the reason for its refusal must hold; None if the alert is to be stored.
    added
        By the name of an added top-level field the value that its column is to have.
    changes
        What was changed, for people.
    """

    survey: str
    before: bytes
    schema: Schema
    record: bytes
    refused: str | None
    added: dict[str, Any]
    changes: list[str]

    def __repr__(self) -> str:
        return f"<{self.survey}: {'; '.join(self.changes)}>"

    def container(self) -> bytes:
        """The alert in a container with its schema."""
        text = json.dumps(self.schema).encode()
        head = varint(1) + varint(11) + b"avro.schema" + varint(len(text)) + text + varint(0)
        sync = bytes(range(16))
        block = varint(1) + varint(len(self.record)) + self.record
        return b"Obj\x01" + head + sync + block + sync

    def confluent(self, schema_id: int) -> bytes:
        """The alert in Confluent's framing."""
        return b"\0" + schema_id.to_bytes(4, "big") + self.record


def alerts_of_today(survey: str, count: int) -> list[bytes]:
    """Alerts of Rubin 11.1 or ZTF 4.02 with histories."""
    share = float(survey == "lsst")
    simulator = Simulator(
        3, Fields(nights=8, first_night=6), Mix(lsst_share=share, null_cutouts=0.0)
    )
    return [alert.body for alert in simulator.alerts(count)]


class Types:
    """Draws Avro types; no two named types get the same name."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.names = 0

    def name(self) -> str:
        self.names += 1
        return f"added{self.names}"

    def any(self, depth: int = 2) -> Schema:
        kinds = ["primitive", "logical", "enum", "fixed"]
        kinds += ["array", "map", "record", "optional", "union"] if depth else []
        return getattr(self, self.draw(st.sampled_from(kinds)))(depth)

    def primitive(self, depth: int) -> Schema:
        return self.draw(st.sampled_from(sorted(schemas.PRIMITIVES)))

    def logical(self, depth: int) -> Schema:
        return self.draw(
            st.sampled_from(
                [
                    {"type": "bytes", "logicalType": "decimal", "precision": 7, "scale": 3},
                    {"type": "bytes", "logicalType": "decimal", "precision": 90, "scale": 3},
                    {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 5},
                    {"type": "string", "logicalType": "uuid"},
                    {"type": "int", "logicalType": "date"},
                    {"type": "int", "logicalType": "time-millis"},
                    {"type": "long", "logicalType": "time-micros"},
                    {"type": "long", "logicalType": "timestamp-millis"},
                    {"type": "long", "logicalType": "timestamp-nanos"},
                    {"type": "long", "logicalType": "local-timestamp-micros"},
                    {"type": "long", "logicalType": "phase-of-the-moon"},
                ]
            )
        )

    def enum(self, depth: int) -> Schema:
        return {"type": "enum", "name": self.name(), "symbols": ["A", "B", "C"]}

    def fixed(self, depth: int) -> Schema:
        size = self.draw(st.sampled_from([0, 1, 5, 12, 40]))
        logical = {
            1: {"logicalType": "decimal", "precision": 2},
            12: {"logicalType": "duration"},
            40: {"logicalType": "decimal", "precision": 60, "scale": 3},
        }
        return {"type": "fixed", "name": self.name(), "size": size, **logical.get(size, {})}

    def array(self, depth: int) -> Schema:
        items = self.any(depth - 1)
        # Refused, as nothing bounds how many a message claims (docs/adr/0015-hostile-bytes.md).
        return {"type": "array", "items": "int" if takes_no_bytes(items) else items}

    def map(self, depth: int) -> Schema:
        return {"type": "map", "values": self.any(depth - 1)}

    def record(self, depth: int) -> Schema:
        count = self.draw(st.integers(0, 3))
        fields = [{"name": f"f{n}", "type": self.any(depth - 1)} for n in range(count)]
        return {"type": "record", "name": self.name(), "fields": fields}

    def optional(self, depth: int) -> Schema:
        inner = self.any(depth - 1)
        if isinstance(inner, list) or inner == "null":
            return inner
        return self.draw(st.sampled_from([["null", inner], [inner, "null"]]))

    def union(self, depth: int) -> Schema:
        branches: dict[Any, Schema] = {}
        for _ in range(self.draw(st.integers(1, 4))):
            branch = self.any(depth - 1)
            if not isinstance(branch, list):
                kind = branch if isinstance(branch, str) else branch["type"]
                key = branch["name"] if kind in ("record", "enum", "fixed") else kind
                branches.setdefault(key, branch)
        return list(branches.values()) or ["int", "string"]


def takes_no_bytes(kind: Schema) -> bool:
    """Whether every value of a type has no bytes."""
    if isinstance(kind, dict) and kind["type"] == "record":
        return all(takes_no_bytes(field["type"]) for field in kind["fields"])
    return kind == "null" or (isinstance(kind, dict) and kind.get("size") == 0)


def value_of(kind: Schema, rng: random.Random) -> Any:
    """A random value of a type, as fastavro writes it without logical types."""
    if isinstance(kind, list):
        return value_of(rng.choice(kind), rng)
    name = kind if isinstance(kind, str) else kind["type"]
    if name in ("array", "map"):
        values = [value_of(kind["items" if name == "array" else "values"], rng) for _ in range(2)]
        return values if name == "array" else dict(zip("ab", values, strict=True))
    if name == "record":
        return {field["name"]: value_of(field["type"], rng) for field in kind["fields"]}
    if name == "enum":
        return rng.choice(kind["symbols"])
    if name == "fixed":
        return rng.randbytes(kind["size"])
    made = {
        **{"null": None, "boolean": rng.random() < 0.5, "bytes": rng.randbytes(20)},
        **{"int": rng.randrange(-(1 << 31), 1 << 31), "long": rng.randrange(-(1 << 63), 1 << 63)},
        **{"float": rng.randrange(1000) / 8, "double": rng.random(), "string": "Ünïcode"},
    }
    return made[name]


def column_value(kind: Schema, value: Any) -> Any:
    """What a column of this type holds for a value; `LEFT_OUT` if it can have no column."""
    if isinstance(kind, list):
        others = [branch for branch in kind if branch != "null"]
        if len(kind) != 2 or len(others) != 1:
            return LEFT_OUT
        found = column_value(others[0], value)
        return None if value is None and has_column(others[0]) else found
    if not has_column(kind):
        return LEFT_OUT
    name = kind if isinstance(kind, str) else kind["type"]
    if value is None:
        return None
    if name == "array":
        return [column_value(kind["items"], each) for each in value]
    if name == "map":
        return [(key, column_value(kind["values"], each)) for key, each in value.items()]
    if name == "record":
        found = {
            field["name"]: column_value(field["type"], value[field["name"]])
            for field in kind["fields"]
        }
        return {key: each for key, each in found.items() if each is not LEFT_OUT}
    return value


def has_column(kind: Schema) -> bool:
    """Whether Parquet has the type."""
    if isinstance(kind, list):
        others = [branch for branch in kind if branch != "null"]
        return len(kind) == 2 and len(others) == 1 and has_column(others[0])
    if isinstance(kind, str):
        return kind != "null"
    if kind["type"] in ("array", "map"):
        return has_column(kind.get("items") or kind["values"])
    if kind["type"] == "record":
        return any(has_column(field["type"]) for field in kind["fields"])
    return kind.get("size") != 0


@st.composite
def evolved(draw: st.DrawFn, today: dict[str, list[bytes]]) -> Evolved:
    """An alert of one of these surveys with one to four changes of its schema."""
    survey = draw(st.sampled_from(sorted(today)))
    before = draw(st.sampled_from(today[survey]))
    given, data = oracle.unframe(before)
    record: Any = fastavro.schemaless_reader(io.BytesIO(data), given)
    change = _Change(draw, survey, _plain(given), record)
    for _ in range(draw(st.integers(1, 4))):
        getattr(change, draw(st.sampled_from(["add", "add", "remove", "reorder", "retype"])))()
    if draw(st.integers(0, 3)) == 0:
        change.break_one()
    return change.evolved(before)


def _plain(schema: Schema) -> Schema:
    """A schema with simple names and definitions at first use, as a value of its own."""
    return json.loads(json.dumps(schemas.simplify(json.loads(json.dumps(schema)))))


class _Change:
    def __init__(self, draw: st.DrawFn, survey: str, schema: Schema, record: Any) -> None:
        self.draw, self.survey, self.schema, self.record = draw, survey, schema, record
        self.types = Types(draw)
        self.rng = random.Random(draw(st.integers(0, 1 << 20)))
        self.refused: str | None = None
        self.changes: list[str] = []
        self.added: dict[str, Any] = {}

    def a_record(self) -> dict:
        """The type of a record of the schema: its own, that of the history, or another."""
        return self.draw(st.sampled_from([self.schema, *self.records()]))

    def records(self) -> list[dict]:
        named = schemas.definitions(self.schema).values()
        old = [kind for kind in named if not kind["name"].startswith("added")]
        return [kind for kind in old if kind["type"] == "record" and kind["fields"]]

    def spare(self, record: dict) -> list[dict]:
        """The fields of a record type that Stampede does not read."""
        read = READ[self.survey] | TOP[self.survey] | set(OWN.values())
        read |= {*FLAGS, *CUTOUTS}
        return [f for f in record["fields"] if f["name"] not in read]

    def add(self) -> None:
        record, kind = self.a_record(), self.types.any()
        name = self.types.name()
        at = self.draw(st.integers(0, len(record["fields"])))
        for value in self.values(record["name"]):
            value[name] = value_of(kind, self.rng)
        if record is self.schema:
            self.added[name] = column_value(kind, self.record[name])
        record["fields"].insert(at, {"name": name, "type": kind})
        self.changes.append(f"{record['name']} has {name}: {json.dumps(kind)}")

    def remove(self) -> None:
        record = self.a_record()
        spare = [f for f in self.spare(record) if f["name"] not in self.added]
        if len(record["fields"]) > 1 and spare:
            gone = self.draw(st.sampled_from(spare))
            types = schemas.definitions(self.schema)
            record["fields"] = [f for f in record["fields"] if f is not gone]
            self.define_again(types)
            self.changes.append(f"{record['name']} has no {gone['name']}")

    def reorder(self) -> None:
        record, types = self.a_record(), schemas.definitions(self.schema)
        record["fields"] = self.draw(st.permutations(record["fields"]))
        self.define_again(types)
        self.changes.append(f"{record['name']} is in another order")

    def retype(self) -> None:
        """A number gets wider or may be null; one that nothing reads may become a text."""
        record = self.a_record()
        exact = ("Id", "candid", "pid", "programid", "visit")  # ids, for which no double will do
        fields = [f for f in record["fields"] if not f["name"].endswith(exact)]
        if not (fields := [f for f in fields if _number(f["type"])]):
            return
        field = self.draw(st.sampled_from(fields))
        number = _number(field["type"])
        wider = [*WIDER.get(number, ()), number]
        if field in self.spare(record):
            wider.append("string")
        new = self.draw(st.sampled_from(wider))
        made = {"int": int, "long": int, "string": str, "float": _single}.get(new, float)
        for value in self.values(record["name"]):
            given = value[field["name"]]
            value[field["name"]] = None if given is None else made(given)
        null = isinstance(field["type"], list) or self.draw(st.booleans())
        field["type"] = self.draw(st.sampled_from([["null", new], [new, "null"]])) if null else new
        self.changes.append(f"{record['name']}.{field['name']} is {field['type']}")
        if record is self.schema and field["name"] in self.added:
            self.added[field["name"]] = self.record[field["name"]]

    def break_one(self) -> None:
        """Remove a field that an alert needs, or give it a type that does not fit."""
        own = self.own()
        name = self.draw(st.sampled_from(NEEDED[self.survey]))
        (field,) = (f for f in own["fields"] if f["name"] == name)
        types = schemas.definitions(self.schema)
        if self.draw(st.booleans()):
            own["fields"].remove(field)
            self.define_again(types)
        else:
            texts = ("band", "isdiffpos")
            unfit = [k for k in UNFIT if not (name in texts and k == "string")]
            field["type"] = json.loads(json.dumps(self.draw(st.sampled_from(unfit))))
            for value in self.values(own["name"]):
                value[name] = value_of(field["type"], self.rng)
        self.refused = name
        self.changes.append(f"{name} is {'gone' if field not in own['fields'] else field['type']}")

    def own(self) -> dict:
        kinds = schemas.definitions(self.schema)
        (field,) = (f for f in self.schema["fields"] if f["name"] == OWN[self.survey])
        return kinds[field["type"]] if isinstance(field["type"], str) else field["type"]

    def define_again(self, types: dict[str, dict]) -> None:
        self.schema = _defined_at_first_use(self.schema, types, set())

    def values(self, name: str) -> Iterator[dict]:
        """The values in the record that are of the record type of this name."""
        return _values(self.schema, self.record, name, schemas.definitions(self.schema))

    def evolved(self, before: bytes) -> Evolved:
        out = io.BytesIO()
        plain = schemas.without_logical(self.schema)
        fastavro.schemaless_writer(out, fastavro.parse_schema(plain), self.record)
        named = {"lsst": "lsst.v11_2.alert", "ztf": "ztf.alert"}[self.survey]
        schema = json.loads(json.dumps(self.schema)) | {"name": named}
        return Evolved(
            self.survey, before, schema, out.getvalue(), self.refused, self.added, self.changes
        )


def _single(value: float) -> float:
    """The nearest number of 32 bits."""
    return struct.unpack("f", struct.pack("f", value))[0]


def _number(kind: Schema) -> str:
    """The type of a number that may be null; empty if it is no such type."""
    for branch in kind if isinstance(kind, list) and "null" in kind else [kind]:
        if isinstance(branch, str) and branch in ("int", "long", "float", "double"):
            return branch
    return ""


def _values(kind: Schema, value: Any, name: str, types: dict[str, dict]) -> Iterator[dict]:
    if isinstance(kind, str):
        kind = types.get(kind, kind)
    if value is None or isinstance(kind, str):
        return
    if isinstance(kind, list):
        others = [branch for branch in kind if branch != "null"]
        if len(others) == 1:
            yield from _values(others[0], value, name, types)
    elif kind["type"] == "array":
        for each in value:
            yield from _values(kind["items"], each, name, types)
    elif kind["type"] == "record":
        if kind["name"] == name:
            yield value
        for field in kind["fields"]:
            yield from _values(field["type"], value.get(field["name"]), name, types)


def _defined_at_first_use(kind: Schema, types: dict[str, dict], seen: set[str]) -> Schema:
    if isinstance(kind, list):
        return [_defined_at_first_use(branch, types, seen) for branch in kind]
    if isinstance(kind, str):
        if kind in seen or kind not in types:
            return kind
        kind = types[kind]
    if "name" in kind:
        if kind["name"] in seen:
            return kind["name"]
        seen.add(kind["name"])
    for key in ("items", "values"):
        if key in kind:
            kind[key] = _defined_at_first_use(kind[key], types, seen)
    for field in kind.get("fields", ()):
        field["type"] = _defined_at_first_use(field["type"], types, seen)
    return kind
