"""The simulated alert, and the pieces of Avro from which its bytes are put together.

Each row of a history is encoded once, by fastavro, when it is measured; every later alert of
the object carries the same bytes. Hence full histories cost nothing but a join.
"""

import io
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import fastavro

from stampede.alerts.container import varint
from stampede.alerts.schemas import Schema, parsed
from stampede.simulator.sky import Point

NULL, SOME = b"\x00", b"\x02"  # which branch of the union ["null", type] follows


@dataclass(frozen=True, slots=True)
class SimulatedAlert:
    """An alert as sent, and what is true of it.

    Attributes
    ----------
    body
        The message: for LSST in Confluent framing, for ZTF an Avro object container.
    kind
        What it shows: supernova, variable, agn or mover.
    fits
        The FITS file of each cutout, not gzipped; None where the alert carries none.
    points
        Its own point first, then each of its history.
    duplicate
        The same bytes were sent before.
    fault
        What is wrong with it, a key of `stampede.simulator.faults.FAULTS`; then `fits` and
        `points` tell what was there before it was spoilt.
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
    """Avro bytes, or a string."""
    content = content.encode() if isinstance(content, str) else content
    return varint(len(content)) + content


def double(number: float) -> bytes:
    """An Avro double."""
    return struct.pack("<d", number)


def array(rows: list[bytes]) -> bytes:
    """An Avro array, as one block."""
    return varint(len(rows)) + b"".join(rows) + b"\x00" if rows else b"\x00"


def named_types(schema: Schema) -> dict[str, Schema]:
    """Every record of a simplified schema by its name."""
    found: dict[str, Schema] = {}

    def walk(part: Schema) -> None:
        match part:
            case list():
                for branch in part:
                    walk(branch)
            case {"type": "array", "items": items}:
                walk(items)
            case {"type": "record", "name": name, "fields": fields}:
                found[name] = part
                for each in fields:
                    walk(each["type"])

    walk(schema)
    return found


def encoder(schema: Schema, **blank: object) -> Callable[[dict], bytes]:
    """A function that encodes records of `schema`.

    Fields that a record leaves out are filled in by type: `blank` says with what, null where it
    does not.
    """
    prepared = parsed(schema)

    def filling(kind: Schema) -> object:
        branches = kind if isinstance(kind, list) else [kind]
        first = next((b for b in branches if b != "null"), "null")
        return blank.get(first) if isinstance(first, str) else None

    filled = {each["name"]: filling(each["type"]) for each in schema["fields"]}

    def encode(record: dict) -> bytes:
        unknown = record.keys() - filled.keys()
        if unknown:
            raise KeyError(f"{schema['name']} has no {sorted(unknown)}")
        out = io.BytesIO()
        fastavro.schemaless_writer(out, prepared, filled | record)
        return out.getvalue()

    return encode
