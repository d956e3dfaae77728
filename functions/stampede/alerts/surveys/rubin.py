"""Rubin's alerts, all schema versions from 3.0 on, in the columns of the one model.

Source: the alert schemas of Rubin Observatory (``lsst.v3_0`` to ``lsst.v11_1``). A field that
was renamed between versions is looked up by each of its names. In all versions fluxes are in
nanojansky and times are MJD TAI, except `time_processed` of 8.0, which is a UTC timestamp.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stampede.alerts.arrays import Rows, concat, constant, explode, table_of
from stampede.alerts.bounds import check_image
from stampede.alerts.columns import DETECTION, FLAGS
from stampede.alerts.surveys.rubin_schemas import rubin_schemas
from stampede.alerts.surveys.survey import FITS_BLOCK, FITS_MAGIC, Band, Moving, NotFits, SkyAxes
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.timescale import MJD_TAI_OF_1970

NAME: str = "lsst"
OWN_FIELD: str = "diaSource"
REQUIRED_FIELDS: Sequence[tuple[str, ...]] = (
    ("diaSource.diaSourceId",),
    ("diaSource.diaObjectId",),
    ("diaSource.midpointMjdTai", "diaSource.midPointTai"),
    ("diaSource.psfFlux", "diaSource.psFlux"),
    ("diaSource.band", "diaSource.filterName"),
    ("diaSource.ra",),
    ("diaSource.dec", "diaSource.decl"),
)
CUTOUT_FIELDS: Mapping[str, str] = {
    "science": "cutoutScience",
    "template": "cutoutTemplate",
    "difference": "cutoutDifference",
}
HISTORY_FIELDS: Sequence[str] = (
    "prvDiaSources",
    "prvDiaForcedSources",
    "prvDiaNondetectionLimits",
)
# The first card of a FITS file (FITS standard 4.0, 4.4.1.1), all 30 bytes of it: the search for
# images takes longer steps the longer this is (docs/adr/0011-one-file-to-decode.md).
IMAGE_MAGIC: bytes = b"SIMPLE  = %20s" % b"T"
SKY_AXES: SkyAxes | None = None  # each header has its own
BANDS: Mapping[str, Band] = {
    "u": Band("#0c71ff", "#5aa9ff"),
    "g": Band("#2f9e4d", "#4cd07d"),
    "r": Band("#c61c00", "#ff6a4d"),
    "i": Band("#ba7f00", "#f2c230"),
    "z": Band("#d6248a", "#ff7cc4"),
    "y": Band("#5d0000", "#d39a86"),
}
MOVING: Moving | None = Moving(
    designation=(
        "ssSource.designation",
        "mpc_orbits.unpacked_primary_provisional_designation",
        "mpc_orbits.designation",
        "MPCORB.mpcDesignation",
    ),
    phase_angle=("ssSource.phaseAngle",),
    helio_distance=("ssSource.helioRange", "ssSource.heliocentricDist"),
    topo_distance=("ssSource.topoRange", "ssSource.topocentricDist"),
    predicted_mag=("ssSource.ephVmag", "ssSource.predictedVMagnitude"),
    offset=("ssSource.ephOffset",),
)
OBJECT_PAGES: Mapping[str, str] = {
    "ALeRCE": "https://lsst.alerce.online/object/{}?survey=lsst",
    "Fink": "https://lsst.fink-portal.org/{}",
    "Lasair": "https://lasair.lsst.ac.uk/objects/{}/",
}
HEAD = (
    *("diaSourceId", "diaObjectId", "ssObjectId", "midpointMjdTai", "midPointTai"),
    *("band", "filterName", "ra", "dec", "decl", "timeProcessedMjdTai", "time_processed"),
)

INSTANT = pa.timestamp("us", "+00:00")
DETECTORS = 1000  # more than Rubin's 205: what a visit is multiplied by in the id of a forced point

built_in_schemas = rubin_schemas


def head_columns(fields: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """The columns that `head` needs."""
    return [f"diaSource.{name}" for name in HEAD if name in own]


def head(table: pa.Table) -> pa.Table:
    """One row per alert, as `Survey.head`. The alert id is the diaSourceId in every version.

    Early solar-system alerts have an ssObjectId of 0. An alert with neither object takes its
    own id as object id, because Rubin names a new diaObject by its first diaSource.
    """
    rows = Rows.of_table(table, "diaSource.")
    alert_id = rows.get("diaSourceId", type=pa.int64())
    known = [rows.get(name, type=pa.int64()) for name in ("diaObjectId", "ssObjectId")]
    given = [pc.if_else(pc.not_equal(ids, 0), ids, pa.scalar(None, pa.int64())) for ids in known]
    mjd = rows.get("midpointMjdTai", "midPointTai", type=pa.float64())
    return pa.table(
        {
            "alert_id": alert_id,
            "object_id": pc.coalesce(*given, alert_id).cast(pa.string()),
            "mjd": mjd,
            "band": rows.get("band", "filterName", type=pa.string()),
            "ra": rows.get("ra", type=pa.float64()),
            "dec": rows.get("dec", "decl", type=pa.float64()),
            "processed_mjd": pc.coalesce(processed(rows), mjd),
        }
    )


def cutout(table: pa.Table, kind: str) -> pa.Array:
    """The FITS files of one kind, not compressed; null where Rubin sent none."""
    name = CUTOUT_FIELDS[kind]
    return table[name].chunk(0) if name in table.column_names else pa.nulls(len(table), pa.binary())


def check_file(image: bytes | memoryview) -> None:
    """Raise `NotFits` or `TooManyPixels` for bytes that are no FITS file that can be served."""
    begin = bytes(image[:FITS_BLOCK])
    if not begin.startswith(FITS_MAGIC):
        raise NotFits(begin)
    check_image(len(image), begin)


def detections(table: pa.Table, heads: pa.Table) -> pa.Table:
    """Every point of the light curves in these alerts, as `DETECTION`.

    These are the alert's own diaSource, its previous ones, its forced photometry, whose `source_id`
    is that of `_forced_ids`, and, up to schema 7.4, its non-detection limits, whose `source_id` is
    the ccdVisitId.
    """
    own = Rows.of_struct(table["diaSource"].chunk(0), "diaSource.")
    parts = [_points(own, heads, forced=False)]
    for name in HISTORY_FIELDS:
        if name not in table.column_names:
            continue
        parents, rows = explode(table[name].chunk(0), name)
        row_heads = heads.take(pa.array(parents))
        if name == "prvDiaNondetectionLimits":
            parts.append(_limits(rows, row_heads))
        else:
            parts.append(_points(rows, row_heads, forced=name == "prvDiaForcedSources"))
    return concat(DETECTION, parts)


def processed(rows: Rows) -> pa.Array:
    """When Rubin made the row, MJD TAI; null if the row has no such time."""
    if rows.has("time_processed"):  # 8.0 only: a timestamp in microseconds, UTC
        instants = rows.get("time_processed", type=INSTANT)
        micros = instants.cast(pa.int64()).cast(pa.float64(), safe=False)
        return pc.add(pc.divide(micros, 86400e6), MJD_TAI_OF_1970)
    return rows.get("timeProcessedMjdTai", type=pa.float64())


def _points(rows: Rows, heads: pa.Table, forced: bool) -> pa.Table:
    single = pa.float32()
    withdrawn = rows.get("timeWithdrawnMjdTai", type=pa.float64()).is_valid()
    if rows.has("time_withdrawn"):
        withdrawn = rows.get("time_withdrawn", type=INSTANT).is_valid()
    columns = {
        "object_id": heads["object_id"],
        "survey": NAME,
        "forced": forced,
        "limit": False,
        "source_id": _forced_ids(rows) if forced else rows.get("diaSourceId", type=pa.int64()),
        "mjd": rows.get("midpointMjdTai", "midPointTai", type=pa.float64()),
        "band": rows.get("band", "filterName", type=pa.string()),
        "ra": rows.get("ra", type=pa.float64()),
        "dec": rows.get("dec", "decl", type=pa.float64()),
        "flux": rows.get("psfFlux", "psFlux", type=single),
        "flux_err": rows.get("psfFluxErr", "psFluxErr", type=single),
        "total_flux": rows.get("scienceFlux", "totFlux", type=single),
        "total_flux_err": rows.get("scienceFluxErr", "totFluxErr", type=single),
        "reliability": rows.get("reliability", type=single),
        "visit": rows.get("visit", "ccdVisitId", type=pa.int64()),
        "detector": rows.get("detector", type=pa.int32()),
        "withdrawn": withdrawn,
        "processed_mjd": pc.coalesce(processed(rows), heads["processed_mjd"].combine_chunks()),
        "flags": _flags(rows),
    }
    return table_of(DETECTION, columns, rows.length)


def _forced_ids(rows: Rows) -> pa.Array:
    """Of each forced point ``visit * 1000 + detector``; its diaForcedSourceId where it has neither.

    Rubin's database has one forced point of an object in a visit and detector (the primary key of
    `DiaForcedSource` in ``apdb.yaml`` of its sdm_schemas). Who processes a visit again gives the
    point another diaForcedSourceId, which must not make it another point.
    """
    given = rows.get("diaForcedSourceId", type=pa.int64())
    if not rows.has("detector") or not rows.has("visit"):  # before schema 7.0
        return given
    visit = rows.get("visit", type=pa.int64())
    detector = rows.get("detector", type=pa.int64())
    usable = pc.and_(
        pc.and_(pc.greater(visit, 0), pc.less(visit, 2**63 // DETECTORS)),
        pc.and_(pc.greater_equal(detector, 0), pc.less(detector, DETECTORS)),
    )
    ids = pc.add(pc.multiply(visit, DETECTORS), detector)
    return pc.if_else(pc.fill_null(usable, False), ids, given)


def _flags(rows: Rows) -> pa.Array | None:
    """The bits of `FLAGS`; null for a row that has none of these flags."""
    known = [(bit, name) for bit, name in enumerate(FLAGS) if rows.has(name)]
    columns = {bit: rows.get(name, type=pa.bool_()) for bit, name in known}
    if not columns:
        return None
    bits = np.zeros(rows.length, np.int32)
    unknown = np.ones(rows.length, bool)
    for bit, column in columns.items():
        if column.null_count:
            unknown &= column.is_null().to_numpy(zero_copy_only=False)
            column = column.fill_null(False)
        else:
            unknown[:] = False
        bits |= column.to_numpy(zero_copy_only=False).astype(np.int32) << bit
    return pa.array(bits, mask=unknown)


def _limits(rows: Rows, heads: pa.Table) -> pa.Table:
    visit = rows.get("ccdVisitId", type=pa.int64())
    columns = {
        "object_id": heads["object_id"],
        "survey": NAME,
        "forced": False,
        "limit": True,
        "source_id": visit,
        "mjd": rows.get("midpointMjdTai", "midPointTai", type=pa.float64()),
        "band": rows.get("band", "filterName", type=pa.string()),
        "flux_err": rows.get("diaNoise", type=pa.float32()),
        "visit": visit,
        "withdrawn": constant(False, rows.length),
        "processed_mjd": heads["processed_mjd"],
    }
    return table_of(DETECTION, columns, rows.length)
