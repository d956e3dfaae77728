"""Alerts made for the tests with fastavro: any schema, any value."""

import gzip
import io
import json
import random
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro

from stampede.alerts import container, schemas
from stampede.alerts.columns import KINDS
from stampede.alerts.framing import Framing
from stampede.alerts.surveys.rubin_schemas import rubin_schemas

REAL = Path(__file__).parents[5] / "shared" / "data"
FITS = b"SIMPLE  =                    T" + b" " * 50 + b"x" * 2800
# A string that looks like the length of an image, 10,849 bytes, and its first bytes.
FORGED = "©\x01" + FITS[:30].decode()


def fill(schema, rng: random.Random, names: dict):
    """A random value of an Avro schema; half of the optional fields are null."""
    if isinstance(schema, str):
        schema = names.get(schema, schema)
    if isinstance(schema, list):
        return fill(rng.choice(schema), rng, names)
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(schema, dict) and "logicalType" in schema:
        return rng.randrange(10**15, 2 * 10**15)  # microseconds: 2001 to 2033
    if kind == "record":
        names[schema["name"]] = schema
        return {f["name"]: fill(f["type"], rng, names) for f in schema["fields"]}
    if kind == "array":
        return [fill(schema["items"], rng, names) for _ in range(rng.randrange(4))]
    return {
        "null": lambda: None,
        "boolean": lambda: rng.random() < 0.5,
        "int": lambda: rng.randrange(1, 1 << 14),
        "long": lambda: rng.randrange(1, 1 << 62),
        "float": lambda: struct.unpack("f", struct.pack("f", rng.uniform(-1e4, 1e4)))[0],
        "double": lambda: rng.uniform(50000, 61000),
        "bytes": lambda: FITS,
        "string": lambda: rng.choice("ugrizy"),
    }[kind]()


def rubin_record(version: int, seed: int = 0) -> dict:
    return fill(rubin_schemas()[version], random.Random(seed), {})


def confluent(record: dict, version: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schemas.parsed(rubin_schemas()[version]), record)
    return b"\0" + version.to_bytes(4, "big") + out.getvalue()


def row_type(name: str, fields: Mapping[str, object]) -> dict:
    listed = [{"name": key, "type": kind} for key, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


def ztf_schema(candid="long", drb: bool = True, forced: bool = True) -> dict:
    """The part of ZTF's schema that Stampede reads, in a namespace."""
    optional = lambda kind: ["null", kind]
    nearest = {name: optional("float") for name in ("distnr", "magnr", "sigmagnr")}
    measured = {
        **{"jd": "double", "fid": "int", "pid": "long", "diffmaglim": optional("float")},
        **{"programid": "int", "rcid": optional("int"), "rb": optional("float")},
        **{"magpsf": optional("float"), "sigmapsf": optional("float")},
        **{"ra": optional("double"), "dec": optional("double"), "isdiffpos": optional("string")},
        **nearest,
    }
    candidate = {**measured, "candid": candid, **({"drb": optional("float")} if drb else {})}
    history = {**measured, "candid": optional("long")}
    point = {
        **{"jd": "double", "fid": "int", "pid": "long", "rcid": optional("int")},
        "programid": optional("int"),
        **{
            name: optional("float")
            for name in ("forcediffimflux", "forcediffimfluxunc", "magzpsci", "diffmaglim")
        },
        "procstatus": optional("string"),
        **nearest,
    }
    stamp = row_type("cutout", {"fileName": "string", "stampData": "bytes"})
    fields = {
        **{"schemavsn": "string", "objectId": "string", "candid": candid},
        "candidate": row_type("candidate", candidate),
        "prv_candidates": ["null", {"type": "array", "items": row_type("prv_candidate", history)}],
        **(
            {"fp_hists": ["null", {"type": "array", "items": row_type("fp_hist", point)}]}
            if forced
            else {}
        ),
        "cutoutScience": ["null", stamp],
        "cutoutTemplate": ["null", "ztf.alert.cutout"],
        "cutoutDifference": ["null", "ztf.alert.cutout"],
    }
    return {**row_type("alert", fields), "namespace": "ztf.alert"}


def ztf_record(candid=2430301980815015000, **changes) -> dict:
    stamp = {"fileName": "x.fits.gz", "stampData": gzip.compress(FITS, mtime=0)}
    candidate = {
        **{"jd": 2460000.5, "fid": 1, "pid": 2430301980815, "diffmaglim": 20.5, "programid": 1},
        **{"rcid": 3, "rb": 0.5, "magpsf": 18.0, "sigmapsf": 0.1, "ra": 10.0, "dec": -5.0},
        **{"isdiffpos": "t", "candid": candid, "drb": 0.9},
    }
    return {
        **{
            "schemavsn": "4.02",
            "objectId": "ZTF18aaaaaaa",
            "candid": candid,
            "candidate": candidate,
        },
        **{"prv_candidates": None, "fp_hists": None},
        **{"cutoutScience": stamp, "cutoutTemplate": stamp, "cutoutDifference": stamp},
        **changes,
    }


def contained(records: list[dict], schema: dict | list, codec: str = "null") -> bytes:
    out = io.BytesIO()
    fastavro.writer(
        out,
        fastavro.parse_schema(json.loads(json.dumps(schema))),
        records,
        codec,
        sync_marker=bytes(16),
    )
    return out.getvalue()


def deflated(record: dict, more: bytes) -> bytes:
    """A container of one record in the codec deflate, with other bytes behind the deflate data."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ztf_schema()), record)
    block = zlib.compress(out.getvalue())[2:-4] + more
    head = contained([], ztf_schema(), "deflate")
    return head + container.varint(1) + container.varint(len(block)) + block + head[-16:]


def ztf_alert(candid=2430301980815015000, codec: str = "null", /, **changes) -> bytes:
    return contained([ztf_record(candid, **changes)], ztf_schema(), codec)


def real_alerts() -> list[bytes]:
    rubin = [gzip.decompress(path.read_bytes()) for path in sorted(REAL.glob("lsst/*.avro.gz"))]
    return rubin + [path.read_bytes() for path in sorted(REAL.glob("ztf*/*.avro"))]


def real_rubin_cutouts() -> list[dict[str, bytes]]:
    """The FITS files of each real Rubin alert that has all three; the last three share no visit."""
    records: list[Any] = []
    for path in sorted(REAL.glob("lsst/*.avro.gz")):
        body = gzip.decompress(path.read_bytes())
        schema = schemas.parsed(rubin_schemas()[int.from_bytes(body[1:5], "big")])
        records.append(fastavro.schemaless_reader(io.BytesIO(body[5:]), schema))
    for path in sorted(REAL.glob("lsst-detectors/*.avro")):
        with path.open("rb") as file:
            records += fastavro.reader(file)
    cutouts = [{kind: one[f"cutout{kind.title()}"] for kind in KINDS} for one in records]
    return [files for files in cutouts if all(files.values())]


def record_crc32(message: bytes) -> int:
    """CRC-32 of the Avro record in a message: which version of its alert it is."""
    return zlib.crc32(bytes(Framing(len(message) + (16 << 20)).take(message).record))
