"""Rows for the store's tests, and how they merge in plain Python."""

import math
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from stampede.alerts.columns import CUTOUT, DETECTION
from stampede.store.runs.schema import TableSpec

Row = dict[str, Any]

# Few values of each column, so that keys repeat and versions differ in a single column.
_floats = st.sampled_from([None, 0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf])
detections = st.fixed_dictionaries(
    {
        "object_id": st.sampled_from(["", "1", "10", "2", "é", "ZTF18abc", "ZTF18abc0"]),
        "survey": st.sampled_from(["lsst", "ztf"]),
        "forced": st.booleans(),
        "limit": st.just(False),
        "source_id": st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]),
        "mjd": st.sampled_from([60000.0, 60000.5]),
        "band": st.sampled_from([None, "g", "r"]),
        "ra": _floats,
        "dec": st.none(),
        "flux": _floats,
        "flux_err": st.none(),
        "total_flux": st.none(),
        "total_flux_err": st.none(),
        "reliability": st.none(),
        "visit": st.sampled_from([None, -(2**63), 7]),
        "detector": st.sampled_from([None, -(2**15), 3]),
        "withdrawn": st.booleans(),
        "processed_mjd": st.sampled_from([60000.0, 60001.0]),
        "flags": st.sampled_from([None, 0, 1 << 27]),
        "procstatus": st.sampled_from([None, "0", "56,61"]),
        "limiting_mag": st.none(),
        "rb": st.none(),
        "programid": st.sampled_from([None, 1, 2]),
        "moved": st.sampled_from([None, True]),
    }
)


def table(rows: Iterable[Row], schema: pa.Schema = DETECTION) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema)


def detection(object_id: str, source_id: int, version: int = 0) -> Row:
    """One detection; a higher version wins."""
    row: Row = dict.fromkeys(DETECTION.names)
    row |= {"object_id": object_id, "survey": "lsst", "source_id": source_id}
    row |= {"forced": False, "limit": False, "withdrawn": False, "mjd": 60000.0 + source_id}
    return row | {"processed_mjd": 60000.0 + version, "flux": float(version)}


def many(rows: int, per_object: int = 1, version: int = 0) -> pa.Table:
    """Detections of objects 000000 ..., `per_object` of each."""
    number = np.arange(rows)
    names = [f"{n:06}" for n in (number // per_object).tolist()]
    columns = {
        "object_id": names,
        "survey": ["lsst"] * rows,
        "source_id": number,
        "mjd": 60000 + number / 100,
        "flux": np.full(rows, version, np.float32),
        "processed_mjd": np.full(rows, 60000.0 + version),
    }
    columns |= {name: np.zeros(rows, bool) for name in ("forced", "limit", "withdrawn")}
    empty = DETECTION.empty_table()
    return pa.table(
        {
            field.name: columns.get(field.name, pa.nulls(rows, empty[field.name].type))
            for field in DETECTION
        },
        DETECTION,
    )


def object_ids(rows: pa.Table) -> list[str]:
    """The distinct object ids of a table, sorted."""
    return sorted(set(rows["object_id"].to_pylist()))


def cutout(alert_id: int, kind: str, fits: bytes | None, mjd: float = 60000.25) -> Row:
    row: Row = dict.fromkeys(CUTOUT.names)
    row |= {"alert_id": alert_id, "survey": "ztf", "kind": kind, "object_id": f"ZTF{alert_id}"}
    return row | {"mjd": mjd, "fits": fits}


def ordered(value: Any) -> tuple:
    """A value that Python orders as the store: null, NaN, -inf ... -0.0, 0.0 ... inf; UTF-8."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (1,)
    if isinstance(value, float):
        return (2, value, math.copysign(1, value))
    return (2, value.encode() if isinstance(value, str) else value)


def key_of(row: Row, spec: TableSpec) -> tuple:
    return tuple(ordered(row[name]) for name in spec.key)


def merged(rows: Iterable[Row], spec: TableSpec) -> list[Row]:
    """What the store must return: the greatest version of each key, in key order."""
    best: dict[tuple, tuple] = {}
    for row in rows:
        version = tuple(ordered(row[name]) for name in spec.compared)
        best[key_of(row, spec)] = max(
            best.get(key_of(row, spec), (version, row)), (version, row), key=lambda pair: pair[0]
        )
    return [row for _, (_, row) in sorted(best.items(), key=lambda item: item[0])]


def bits(rows: pa.Table | Iterable[Row]) -> list[tuple]:
    """Rows for which == compares all bits: -0.0 is not 0.0, NaN equals NaN."""
    listed = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    return [
        tuple(struct.pack("d", v) if isinstance(v, float) else v for _, v in sorted(row.items()))
        for row in listed
    ]
