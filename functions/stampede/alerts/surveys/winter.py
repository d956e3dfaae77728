"""WINTER's alerts, schema 0.1, in the columns of the one model.

Source: the alert schemas and `constants.py` of WINTER's pipeline, mirar. It numbers its filters
from 1 (Y, J, Hs), though the schema says from 0. Magnitudes are AB: 2MASS stars in the cutouts have
0.9 mag more than 2MASS gives them in J, which is what AB adds to Vega there (Cohen et al. 2003,
AJ 126, 1090). They become fluxes by ``flux = +-10 ** ((31.4 - mag) / 2.5)`` nJy, where `isdiffpos`
is the sign, and errors by ``flux_err = |flux| * sigmapsf * ln(10) / 2.5``. `jd` is UTC at the start
of the exposure; TAI has been 37 s ahead of UTC since before WINTER began.

The numbers of `programid` are not ZTF's: alerts of all of WINTER's programmes are stored.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from stampede.alerts.arrays import Rows, concat, explode, head_of, images_of, nanojansky, table_of
from stampede.alerts.columns import DETECTION
from stampede.alerts.surveys import ztf
from stampede.alerts.surveys.survey import Band, Moving, SkyAxes
from stampede.runtime import lazy_arrow_compute as pc

NAME: str = "winter"
OWN_FIELD: str = "candidate"
REQUIRED_FIELDS: Sequence[tuple[str, ...]] = (
    ("objectid",),
    ("candid",),
    *((f"candidate.{name}",) for name in ("jd", "fid", "isdiffpos", "magpsf", "sigmapsf")),
    *((f"candidate.{name}",) for name in ("ra", "dec", "progname")),
)
CUTOUT_FIELDS: Mapping[str, str] = {
    "science": "cutout_science",
    "template": "cutout_template",
    "difference": "cutout_difference",
}
HISTORY_FIELDS: Sequence[str] = ("prv_candidates",)
IMAGE_MAGIC: bytes = ztf.IMAGE_MAGIC
# Cutouts have no coordinates. 2MASS stars in them show that x grows to the west, y to the north.
SKY_AXES: SkyAxes | None = SkyAxes(-1.13 / 3600, 0.0, 0.0, 1.13 / 3600)
BANDS: Mapping[str, Band] = {
    "Y": Band("#6a4fc4", "#b09cff"),
    "J": Band("#0f7f86", "#3fc3c9"),
    "Hs": Band("#a04a12", "#ef9a5c"),
}
MOVING: Moving | None = None
OBJECT_PAGES: Mapping[str, str] = {}
BAND_OF_FID = pa.array([None, "Y", "J", "Hs"])  # 4 is a dark frame

built_in_schemas = ztf.built_in_schemas
check_file = ztf.check_file


def head_columns(fields: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """The columns that `head` needs."""
    measured = [f"candidate.{name}" for name in ("jd", "fid", "ra", "dec") if name in own]
    return ["candid", "objectid", *measured]


def head(table: pa.Table) -> pa.Table:
    """One row per alert, as `Survey.head`. The alert id is the candid."""
    rows, own = Rows.of_table(table), Rows.of_table(table, "candidate.")
    ids = rows.get("candid", type=pa.int64()), rows.get("objectid", type=pa.string())
    return head_of(ids, own, _mjd(own), _band(own))


def cutout(table: pa.Table, kind: str) -> pa.Array:
    """The FITS files of one kind, gzipped; null where WINTER sent none."""
    return images_of(table, CUTOUT_FIELDS[kind])


def detections(table: pa.Table, heads: pa.Table) -> pa.Table:
    """Every point of the light curves in these alerts, as `DETECTION`.

    These are the candidate and the previous ones.
    """
    own = Rows.of_struct(table["candidate"].chunk(0), "candidate.")
    parts = [_points(own, heads, ztf.OWN_LATER)]
    for name in HISTORY_FIELDS:
        if name in table.column_names:
            parents, rows = explode(table[name].chunk(0), name)
            parts.append(_points(rows, heads.take(pa.array(parents)), 0.0))
    return concat(DETECTION, parts)


def _points(rows: Rows, heads: pa.Table, later: float) -> pa.Table:
    """Detections. An alert's own is `later` than its copies in later histories, which say less."""
    mjd = _mjd(rows)
    flux = nanojansky(rows.get("magpsf", type=pa.float64()))
    relative = pc.multiply(rows.get("sigmapsf", type=pa.float64()), math.log(10) / 2.5)
    sign = pc.if_else(rows.get("isdiffpos", type=pa.bool_()), 1, -1)
    columns = {
        "object_id": heads["object_id"],
        "survey": NAME,
        "forced": False,
        "limit": False,
        "source_id": rows.get("candid", type=pa.int64()),
        "mjd": mjd,
        "band": _band(rows),
        "ra": rows.get("ra", type=pa.float64()),
        "dec": rows.get("dec", type=pa.float64()),
        "flux": pc.multiply(flux, sign),
        "flux_err": pc.multiply(flux, relative),
        "reliability": rows.get("rb", type=pa.float32()),
        "detector": rows.get("boardid", type=pa.int32()),
        # A candidate that was processed again is sent as deprecated.
        "withdrawn": pc.fill_null(rows.get("deprecated", type=pa.bool_()), False),
        "processed_mjd": pc.add(mjd, later),
        "limiting_mag": rows.get("diffmaglim", type=pa.float32()),
    }
    return table_of(DETECTION, columns, rows.length)


def _mjd(rows: Rows) -> pa.Array:
    return pc.add(rows.get("jd", type=pa.float64()), ztf.JD_UTC_TO_MJD_TAI)


def _band(rows: Rows) -> pa.Array:
    fid = rows.get("fid", type=pa.int32())
    known = pc.is_in(fid, pa.array([1, 2, 3], pa.int32()))
    return BAND_OF_FID.take(pc.if_else(known, fid, pa.scalar(0, pa.int32())))
