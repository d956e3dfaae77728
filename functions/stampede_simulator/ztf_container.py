"""Avro object containers of simulated ZTF alerts, with the schema inside."""

import json
import zlib
from functools import cache
from importlib import resources
from typing import Any

import cramjam

from stampede.alerts.container import varint
from stampede_simulator.alert_bytes import blob

SYNC = b"stampede-simultr"


@cache
def schema() -> dict[str, Any]:
    """The schema of real ZTF alerts of version 4, with their full names."""
    text = resources.files("stampede_simulator").joinpath("ztf_schema.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


@cache
def schema_text() -> str:
    """The schema as text, as it is in the header of every container."""
    return json.dumps(schema(), separators=(",", ":"))


@cache
def container_header(codec: str, written: str) -> bytes:
    """A container up to its block (Avro specification, "Object Container Files")."""
    meta = blob("avro.schema") + blob(written) + blob("avro.codec") + blob(codec)
    return b"Obj\x01" + varint(2) + meta + b"\x00" + SYNC


def container(record: bytes, codec: str = "null", schema: str = "") -> bytes:
    """An object container of one record, by default with our schema."""
    match codec:
        case "deflate":
            record = zlib.compress(record, 1)[2:-4]  # raw: without zlib's header and checksum
        case "snappy":
            checksum = zlib.crc32(record).to_bytes(4, "big")
            record = bytes(cramjam.snappy.compress_raw(record)) + checksum
    return (
        container_header(codec, schema or schema_text())
        + varint(1)
        + varint(len(record))
        + record
        + SYNC
    )
