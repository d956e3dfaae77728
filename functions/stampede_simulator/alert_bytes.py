"""The simulated alert, and the pieces of Avro that make up its bytes.

fastavro encodes each history row once, when it is measured. Every later alert of the object has the
same bytes, so that a full history costs only a join.
"""

import io
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import fastavro

from stampede.alerts.container import varint
from stampede.alerts.schemas import Schema, parsed
from stampede_simulator.sky import Point

NULL, SOME = b"\x00", b"\x02"  # the branch of the union ["null", type]


@dataclass(frozen=True, slots=True)
class SimulatedAlert:
    """An alert as sent, and the values that it should give.

    Attributes
    ----------
    body
        The message: for LSST in Confluent framing, for ZTF an Avro object container.
    kind
        Kind of object: supernova, variable, agn or mover.
    fits
        The FITS file of each cutout, not gzipped; None for a missing cutout.
    points
        The point of the alert itself, then those of its history.
    duplicate
        Whether the same bytes were sent before.
    fault
        A key of `stampede_simulator.faults.FAULTS`, or None. `fits` and `points` are then those of
        the alert without the fault.
    """

    survey: str
    body: bytes
    alert_id: int
    object_id: str
    mjd: float
    kind: str
    fits: dict[str, bytes | None] = field(repr=False)
    points: tuple[Point, ...] = field(repr=False)
    duplicate: bool = False
    fault: str | None = None


def blob(content: bytes | str) -> bytes:
    """Avro bytes, or an Avro string."""
    content = content.encode() if isinstance(content, str) else content
    return varint(len(content)) + content


def double(number: float) -> bytes:
    """An Avro double."""
    return struct.pack("<d", number)


def array(rows: list[bytes]) -> bytes:
    """An Avro array, as one block."""
    return varint(len(rows)) + b"".join(rows) + b"\x00" if rows else b"\x00"


def named_types(schema: Schema) -> dict[str, Schema]:
    """Every record of a simplified schema by name."""
    types: dict[str, Schema] = {}

    def walk(part: Schema) -> None:
        match part:
            case list():
                for branch in part:
                    walk(branch)
            case {"type": "array", "items": items}:
                walk(items)
            case {"type": "record", "name": name, "fields": fields}:
                types[name] = part
                for item in fields:
                    walk(item["type"])

    walk(schema)
    return types


def encoder(schema: Schema, **blank: object) -> Callable[[dict[str, Any]], bytes]:
    """A function that encodes records of `schema`.

    A field that a record leaves out gets the value of its type in `blank`, or null.
    """
    prepared = parsed(schema)

    def default(kind: Schema) -> object:
        branches = kind if isinstance(kind, list) else [kind]
        first = next((b for b in branches if b != "null"), "null")
        return blank.get(first) if isinstance(first, str) else None

    defaults = {item["name"]: default(item["type"]) for item in schema["fields"]}

    def encode(record: dict[str, Any]) -> bytes:
        unknown = record.keys() - defaults.keys()
        if unknown:
            raise KeyError(f"{schema['name']} has no {sorted(unknown)}")
        out = io.BytesIO()
        fastavro.schemaless_writer(out, prepared, defaults | record)
        return out.getvalue()

    return encode
