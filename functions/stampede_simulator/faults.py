"""Faults of an alert, each with the HTTP statuses that the functions must answer."""

import io
import json
import math
from dataclasses import replace
from typing import Any, NamedTuple, cast

import fastavro

from stampede.alerts.framing import whole_record
from stampede.alerts.schemas import Schema, parsed
from stampede.alerts.surveys.rubin_schemas import rubin_schemas
from stampede_simulator import ztf_container
from stampede_simulator.alert_bytes import SimulatedAlert

OLD_RUBIN = 300  # a version that cannot read the bytes of the newest
NOT_FITS = b"This is not a FITS file."


class Answer(NamedTuple):
    """The HTTP status that each function must answer (see `stampede.errors`)."""

    cutouts: int
    lightcurves: int


UNDECODABLE, UNUSABLE = Answer(400, 400), Answer(422, 422)

FAULTS = {
    "empty": UNDECODABLE,  # no bytes at all
    "magic": UNDECODABLE,  # neither Confluent framing nor an Avro container
    "truncated": UNDECODABLE,  # the last third is missing
    "trailing": UNDECODABLE,  # one byte is left over after the record
    "zeros": UNDECODABLE,  # framing and schema, then zeros all through
    "unknown-schema": UNDECODABLE,  # an unknown id; a container whose schema is invalid
    "wrong-schema": UNDECODABLE,  # an id or a schema that does not match the bytes
    "no-time": UNUSABLE,  # the time of the observation is NaN
    "future": UNUSABLE,  # observed decades from now
    "not-fits": Answer(422, 200),  # a cutout that is not FITS; the light curve is correct
}
TIMES = {"no-time": math.nan, "future": 80_000.0}  # MJD; the year 2077


def with_fault(alert: SimulatedAlert, fault: str) -> SimulatedAlert:
    """The same alert with that fault. Raises `ValueError` if there is no such fault."""
    make = _faulty_lsst if alert.survey == "lsst" else _faulty_ztf
    return replace(alert, body=make(alert.body, fault), fault=fault)


def _faulty_lsst(body: bytes, fault: str) -> bytes:
    frame, record = body[:5], body[5:]
    match fault:
        case "zeros":
            return frame + bytes(len(record))
        case "trailing":
            return body + b"\0"
        case "unknown-schema":
            return _framed(9999, record)
        case "wrong-schema":
            return _framed(OLD_RUBIN, record)
        case "no-time" | "future" | "not-fits":
            schema = parsed(rubin_schemas()[int.from_bytes(frame[1:])])
            packet = whole_record(record, schema)
            if fault == "not-fits":
                packet["cutoutScience"] = NOT_FITS
            else:
                packet["diaSource"]["midpointMjdTai"] = TIMES[fault]
            return frame + _written(schema, packet)
    return _faulty(body, fault)


def _faulty_ztf(body: bytes, fault: str) -> bytes:
    reader = fastavro.reader(io.BytesIO(body))
    (packet,) = cast(list[dict[str, Any]], list(reader))
    schema, codec = parsed(ztf_container.schema()), reader.codec
    match fault:
        case "zeros":
            return ztf_container.container(bytes(len(_written(schema, packet))), codec)
        case "trailing":
            return ztf_container.container(_written(schema, packet) + b"\0", codec)
        case "unknown-schema":
            return body.replace(b'"type":"record"', b'"type":"recrod"', 1)
        case "wrong-schema":
            undeclared = ztf_container.schema() | {"fields": ztf_container.schema()["fields"][1:]}
            return ztf_container.container(_written(schema, packet), codec, json.dumps(undeclared))
        case "no-time" | "future" | "not-fits":
            if fault == "not-fits":
                packet["cutoutScience"] = {"fileName": "science.txt", "stampData": NOT_FITS}
            else:
                packet["candidate"]["jd"] = TIMES[fault] + 2400000.5
            return ztf_container.container(_written(schema, packet), codec)
    return _faulty(body, fault)


def _faulty(body: bytes, fault: str) -> bytes:
    match fault:
        case "empty":
            return b""
        case "magic":
            return b"\x07" + body[1:]
        case "truncated":
            return body[: len(body) * 2 // 3]
    raise ValueError(f"no fault is named {fault!r}: there are {', '.join(FAULTS)}")


def _framed(schema_id: int, record: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + record


def _written(schema: Schema, packet: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, packet)
    return out.getvalue()
