"""A survey that does not exist, as an example: one module with the names of `Survey`.

Its alerts carry MJD UTC, microjansky and FITS files that are not compressed.
"""

import pyarrow as pa
import pyarrow.compute as pc

from stampede.alerts.arrays import Rows, concat, explode, table_of
from stampede.alerts.columns import DETECTION
from stampede.alerts.surveys.survey import FITS_MAGIC, Band, NotFits
from stampede.runtime.timescale import TAI_MINUS_UTC

NAME = "argus"
OWN_FIELD = "measurement"
REQUIRED_FIELDS = (("alertId",), ("measurement.mjdUtc",))
CUTOUT_FIELDS = {"science": "imageNew", "template": "imageOld", "difference": "imageDiff"}
HISTORY_FIELDS = ("earlier",)
IMAGE_MAGIC = FITS_MAGIC
SKY_AXES = None
BANDS = {"g": Band("#2f9e4d", "#4cd07d"), "V9": Band("#8a5a00", "#e0b050")}
MOVING = None
OBJECT_PAGES = {"Argus": "https://argus.example/stars/{}"}

_ROW = {"id": "long", "mjdUtc": "double", "filter": "string", "uJy": "float", "uJyErr": "float"}


def _record(name: str, fields: dict) -> dict:
    pairs = [{"name": key, "type": kind} for key, kind in fields.items()]
    return {"type": "record", "name": name, "fields": pairs}


def built_in_schemas() -> dict[int, dict]:
    fields = {
        "alertId": "long",
        "star": "string",
        "measurement": _record("row", _ROW),
        "earlier": {"type": "array", "items": "row"},
        **{name: ["null", "bytes"] for name in CUTOUT_FIELDS.values()},
    }
    return {7: _record("alert", fields)}


def head_columns(fields: dict, own: dict) -> list[str]:
    return ["alertId", "star", "measurement.mjdUtc", "measurement.filter"]


def head(table: pa.Table) -> pa.Table:
    rows, measurement = Rows.of_table(table), Rows.of_table(table, "measurement.")
    nowhere = pa.nulls(len(table), pa.float64())
    return pa.table(
        {
            "alert_id": rows.get("alertId", type=pa.int64()),
            "object_id": rows.get("star", type=pa.string()),
            "mjd": _mjd(measurement),
            "band": measurement.get("filter", type=pa.string()),
            "ra": nowhere,
            "dec": nowhere,
            "processed_mjd": _mjd(measurement),
        }
    )


def cutout(table: pa.Table, kind: str) -> pa.Array:
    return table[CUTOUT_FIELDS[kind]].chunk(0)


def check_file(image: bytes | memoryview) -> None:
    if image[: len(FITS_MAGIC)] != FITS_MAGIC:
        raise NotFits(bytes(image[:8]))


def detections(table: pa.Table, heads: pa.Table) -> pa.Table:
    parents, earlier = explode(table["earlier"].chunk(0))
    measurement = Rows.of_struct(table["measurement"].chunk(0))
    return concat(
        DETECTION, [_points(measurement, heads), _points(earlier, heads.take(pa.array(parents)))]
    )


def _points(rows: Rows, heads: pa.Table) -> pa.Table:
    columns = {
        "object_id": heads["object_id"],
        "survey": NAME,
        "forced": False,
        "limit": False,
        "source_id": rows.get("id", type=pa.int64()),
        "mjd": _mjd(rows),
        "band": rows.get("filter", type=pa.string()),
        "flux": pc.multiply(rows.get("uJy", type=pa.float64()), 1000),
        "flux_err": pc.multiply(rows.get("uJyErr", type=pa.float64()), 1000),
        "withdrawn": False,
        "processed_mjd": _mjd(rows),
    }
    return table_of(DETECTION, columns, rows.length)


def _mjd(rows: Rows) -> pa.Array:
    return pc.add(rows.get("mjdUtc", type=pa.float64()), TAI_MINUS_UTC)
