"""DESIRT's alerts of DECam, schema 0.1.0, in the columns of the one model.

Source: the alerts themselves, whose schema has no documentation. `psfFlux` is nanojansky, since
``31.4 - 2.5 log10(psfFlux)`` is `forcediffimmag`, which is taken for an AB magnitude; it is taken
with the sign that it has. `mjd` is UTC at the start of the exposure: the name of the image in
`objectId` has the same instant. TAI has been 37 s ahead of UTC since before DESIRT began.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from stampede.alerts.arrays import Rows, concat, explode, head_of, images_of, table_of
from stampede.alerts.columns import DETECTION
from stampede.alerts.surveys import rubin, ztf
from stampede.alerts.surveys.survey import Band, Moving, SkyAxes
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.timescale import TAI_MINUS_UTC

NAME: str = "desirt"
OWN_FIELD: str = "candidate"
REQUIRED_FIELDS: Sequence[tuple[str, ...]] = (
    ("objectId",),
    ("candid",),
    *((f"candidate.{name}",) for name in ("mjd", "band", "ra", "dec", "psfFlux", "psfFluxErr")),
)
CUTOUT_FIELDS: Mapping[str, str] = ztf.CUTOUT_FIELDS
HISTORY_FIELDS: Sequence[str] = ("fp_hists",)
IMAGE_MAGIC: bytes = ztf.IMAGE_MAGIC
SKY_AXES: SkyAxes | None = None
BANDS: Mapping[str, Band] = {name: rubin.BANDS[name] for name in "griz"}
MOVING: Moving | None = None
OBJECT_PAGES: Mapping[str, str] = {}

built_in_schemas = ztf.built_in_schemas
check_file = ztf.check_file


def head_columns(fields: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """The columns that `head` needs."""
    measured = [f"candidate.{name}" for name in ("mjd", "band", "ra", "dec") if name in own]
    return ["candid", "objectId", *measured]


def head(table: pa.Table) -> pa.Table:
    """One row per alert, as `Survey.head`. The alert id is the candid."""
    rows, own = Rows.of_table(table), Rows.of_table(table, "candidate.")
    ids = rows.get("candid", type=pa.int64()), rows.get("objectId", type=pa.string())
    return head_of(ids, own, _mjd(own), own.get("band", type=pa.string()))


def cutout(table: pa.Table, kind: str) -> pa.Array:
    """The FITS files of one kind, gzipped; null where DESIRT sent none."""
    return images_of(table, CUTOUT_FIELDS[kind])


def detections(table: pa.Table, heads: pa.Table) -> pa.Table:
    """Every point of the light curves in these alerts, as `DETECTION`.

    These are the candidate and the forced photometry. A forced point has no id of its own: the
    time of its exposure, MJD TAI in milliseconds, stands for it.
    """
    own = Rows.of_struct(table["candidate"].chunk(0), "candidate.")
    found = {"forced": False, "source_id": heads["alert_id"]}
    parts = [_points(own, heads, found)]
    for name in HISTORY_FIELDS:
        if name in table.column_names:
            parents, rows = explode(table[name].chunk(0), name)
            milliseconds = pc.round(pc.multiply(_mjd(rows), 86_400_000)).cast(pa.int64())
            found = {"forced": True, "source_id": milliseconds}
            parts.append(_points(rows, heads.take(pa.array(parents)), found))
    return concat(DETECTION, parts)


def _points(rows: Rows, heads: pa.Table, found: Mapping[str, Any]) -> pa.Table:
    columns = {
        **found,
        "object_id": heads["object_id"],
        "survey": NAME,
        "limit": False,
        "mjd": _mjd(rows),
        "band": rows.get("band", type=pa.string()),
        "ra": rows.get("ra", type=pa.float64()),
        "dec": rows.get("dec", type=pa.float64()),
        "flux": rows.get("psfFlux", type=pa.float64()),
        "flux_err": rows.get("psfFluxErr", type=pa.float64()),
        "reliability": rows.get("reliability", type=pa.float32()),
        "withdrawn": False,
        # Forced photometry is made again for each alert.
        "processed_mjd": heads["processed_mjd"],
        "limiting_mag": rows.get("diffmaglim", type=pa.float32()),
    }
    return table_of(DETECTION, columns, rows.length)


def _mjd(rows: Rows) -> pa.Array:
    return pc.add(rows.get("mjd", type=pa.float64()), TAI_MINUS_UTC)
