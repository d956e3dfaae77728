"""ZTF's alerts, schemas 3.x and 4.x, in the columns of the one model.

Source: the alert schemas of the Zwicky Transient Facility. Magnitudes become fluxes by
``flux = +-10 ** ((31.4 - mag) / 2.5)`` nJy (AB), where `isdiffpos` is the sign, and errors by
``flux_err = |flux| * sigmapsf * ln(10) / 2.5``. Forced photometry comes in counts with a
zero point: ``flux = counts * 10 ** ((31.4 - magzpsci) / 2.5)``. `jd` is UTC at the start of the
exposure. ZTF began after the last leap second, so TAI is always 37 s ahead of UTC.

The total flux is that of the nearest source of the reference image and the difference:
``total_flux = 10 ** ((31.4 - magnr) / 2.5) + flux``. Source: ZTF's notebook
``Variable_star_lightcurves.ipynb`` (``ZwickyTransientFacility/ztf-avro-alert``), after page 102 of
the ZTF Science Data System's Explanatory Supplement. See docs/explanation/total-flux.md.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stampede.alerts.arrays import Rows, concat, explode, head_of, images_of, nanojansky, table_of
from stampede.alerts.bounds import DEFLATE_RATIO, MOST_IMAGE_BYTES, TooManyPixels, check_image
from stampede.alerts.columns import DETECTION
from stampede.alerts.surveys.rubin import BANDS as RUBIN_BANDS
from stampede.alerts.surveys.rubin import check_file as check_raw_file
from stampede.alerts.surveys.survey import (
    FITS_BLOCK,
    FITS_MAGIC,
    PROGRAMID,
    Band,
    Moving,
    NotFits,
    SkyAxes,
)
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.decompression import NotWhole, TooLong, gunzip, gzip_begins
from stampede.runtime.timescale import TAI_MINUS_UTC

NAME: str = "ztf"
OWN_FIELD: str = "candidate"
REQUIRED_FIELDS: Sequence[tuple[str, ...]] = (
    ("objectId",),
    ("candid", "candidate.candid"),
    *(
        (f"candidate.{name}",)
        for name in (
            *("jd", "fid", "pid", "programid", "isdiffpos", "magpsf", "sigmapsf", "ra", "dec"),
        )
    ),
)
CUTOUT_FIELDS: Mapping[str, str] = {
    "science": "cutoutScience",
    "template": "cutoutTemplate",
    "difference": "cutoutDifference",
}
HISTORY_FIELDS: Sequence[str] = ("prv_candidates", "fp_hists")
IMAGE_MAGIC: bytes = b"\x1f\x8b\x08"  # gzip's magic number and method (RFC 1952, 2.3.1)
# Stamps have no coordinates. x grows to the west and y to the south: see docs/adr/0032-north-up.md.
SKY_AXES: SkyAxes | None = SkyAxes(-1.012 / 3600, 0.0, 0.0, -1.012 / 3600)
BANDS: Mapping[str, Band] = {name: RUBIN_BANDS[name] for name in "gri"}
# The nearest known body within 30 arcsec. It is what the alert shows if it is as near as Fink's
# asteroid catcher asks for.
MOVING: Moving | None = Moving(
    designation=("candidate.ssnamenr",),
    predicted_mag=("candidate.ssmagnr",),
    offset=("candidate.ssdistnr",),
    most_offset=5.0,
)
OBJECT_PAGES: Mapping[str, str] = {
    "ALeRCE": "https://alerce.online/object/{}",
    "Fink": "https://ztf.fink-portal.org/{}",
    "Lasair": "https://lasair-ztf.lsst.ac.uk/objects/{}/",
}
HEAD = ("candid", "jd", "fid", "ra", "dec", "programid")
# Days by which an alert's own measurement counts as later than its copies in later histories.
OWN_LATER = 1 / 86400
BAND_OF_FID = pa.array([None, "g", "r", "i"])
JD_UTC_TO_MJD_TAI = -2400000.5 + TAI_MINUS_UTC
MISSING = -99999.0  # how forced photometry writes "no value"
# A source of the reference image is the object itself if `distnr` is less: pixels of 1.01 arcsec in
# candidates, arcsec in forced photometry. The number is that of ALeRCE's light curve correction.
NEAR = 1.4


def built_in_schemas() -> Mapping[int, dict[str, Any]]:
    """No schemas: each message carries its own."""
    return {}


def head_columns(fields: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """The columns that `head` needs."""
    top = [name for name in ("candid", "objectId") if name in fields]
    return [*top, *(f"candidate.{name}" for name in HEAD if name in own)]


def head(table: pa.Table) -> pa.Table:
    """One row per alert, as `Survey.head`. The alert id is the candid."""
    rows, own = Rows.of_table(table), Rows.of_table(table, "candidate.")
    object_id = rows.get("objectId", type=pa.string())
    top, inner = (each.get("candid", type=pa.int64()) for each in (rows, own))
    ids = pc.coalesce(top, inner), pc.if_else(pc.not_equal(object_id, ""), object_id, None)
    found = head_of(ids, own, _mjd(own), _band(own))
    return found.append_column(PROGRAMID, own.get(PROGRAMID, type=pa.int32()))


def cutout(table: pa.Table, kind: str) -> pa.Array:
    """The FITS files of one kind, gzipped; null where ZTF sent none."""
    return images_of(table, CUTOUT_FIELDS[kind], "stampData")


def check_file(image: bytes | memoryview) -> None:
    """Raise `NotFits` or `TooManyPixels` for bytes that are no FITS file, gzipped or not."""
    if bytes(image[: len(FITS_MAGIC)]) == FITS_MAGIC:
        check_raw_file(image)
        return
    if bytes(image[:2]) != IMAGE_MAGIC[:2]:
        begin = bytes(image[:8])
        raise NotFits(begin, f"it is not gzipped either, and begins with 0x{begin.hex()}")
    try:
        begin = gzip_begins(image, FITS_BLOCK)
        if not begin.startswith(FITS_MAGIC):
            raise NotFits(begin, f"unpacked it begins with 0x{begin[:8].hex()}")
        check_image(len(begin), begin)
        if len(image) * DEFLATE_RATIO > MOST_IMAGE_BYTES:  # larger than a real stamp
            gunzip(image, MOST_IMAGE_BYTES)
    except NotWhole as error:
        raise NotFits(b"", f"its gzip file {error}") from error
    except TooLong:
        raise TooManyPixels(f"it unpacks to more than {MOST_IMAGE_BYTES:,} bytes") from None


def detections(table: pa.Table, heads: pa.Table) -> pa.Table:
    """Every point of the light curves in these alerts, as `DETECTION`.

    These are the candidate, the previous ones (those without a candid are upper limits) and,
    from schema 4.0 on, the forced photometry.
    """
    own = Rows.of_struct(table["candidate"].chunk(0), "candidate.")
    parts = [_candidates(own, heads, own.has("drb"), OWN_LATER)]
    for name in HISTORY_FIELDS:
        if name in table.column_names:
            parents, rows = explode(table[name].chunk(0), name)
            row_heads = heads.take(pa.array(parents))
            if name == "fp_hists":
                parts.append(_forced(rows, row_heads))
            else:
                parts.append(_candidates(rows, row_heads, own.has("drb"), 0.0))
    return concat(DETECTION, parts)


def _candidates(rows: Rows, heads: pa.Table, scored_by_drb: bool, later: float) -> pa.Table:
    candid = rows.get("candid", type=pa.int64())
    limit = candid.is_null()
    flux = nanojansky(rows.get("magpsf", type=pa.float64()))
    flux_err = pc.multiply(
        pc.multiply(flux, rows.get("sigmapsf", type=pa.float64())), math.log(10) / 2.5
    )
    sign = pc.if_else(
        pc.is_in(rows.get("isdiffpos", type=pa.string()), pa.array(["t", "1"])), 1, -1
    )
    depth = pc.divide(nanojansky(rows.get("diffmaglim", type=pa.float64())), 5)
    none = pa.scalar(None, pa.float64())
    mjd = _mjd(rows)
    visit = rows.get("pid", type=pa.int64())
    columns = {
        "object_id": heads["object_id"],
        "survey": NAME,
        "forced": False,
        "limit": limit,
        "source_id": pc.coalesce(candid, visit),
        "mjd": mjd,
        "band": _band(rows),
        "ra": rows.get("ra", type=pa.float64()),
        "dec": rows.get("dec", type=pa.float64()),
        "flux": pc.if_else(limit, none, pc.multiply(flux, sign)),
        "flux_err": pc.if_else(limit, depth, flux_err),
        **_total(rows, pc.if_else(limit, none, pc.multiply(flux, sign)), flux_err),
        # The history has no drb. Its rb is another score: beside an alert with drb it has none.
        "reliability": rows.get(*(["drb"] if scored_by_drb else ["rb"]), type=pa.float32()),
        "visit": visit,
        "detector": rows.get("rcid", type=pa.int32()),
        "withdrawn": False,
        # A history row is a copy of the earlier measurement; a later alert does not remake it. The
        # copy is rounded and has no drb, so the alert's own measurement must win the merge.
        "processed_mjd": pc.add(mjd, later),
        "limiting_mag": _not_negative(rows.get("diffmaglim", type=pa.float32())),
        "rb": _not_negative(rows.get("rb", type=pa.float32())),
        "programid": _programid(rows, heads),
    }
    return table_of(DETECTION, columns, rows.length)


def _forced(rows: Rows, heads: pa.Table) -> pa.Table:
    counts, error, zero = (
        _given(rows.get(name, type=pa.float64()))
        for name in ("forcediffimflux", "forcediffimfluxunc", "magzpsci")
    )
    scale = nanojansky(zero)
    visit = rows.get("pid", type=pa.int64())
    columns = {
        "object_id": heads["object_id"],
        "survey": NAME,
        "forced": True,
        "limit": False,
        "source_id": visit,
        "mjd": _mjd(rows),
        "band": _band(rows),
        "flux": pc.multiply(counts, scale),
        "flux_err": pc.multiply(error, scale),
        **_total(rows, pc.multiply(counts, scale), pc.multiply(error, scale)),
        "visit": visit,
        "detector": rows.get("rcid", type=pa.int32()),
        "withdrawn": False,
        # ZTF measures forced photometry again for every alert.
        "processed_mjd": heads["processed_mjd"],
        "procstatus": rows.get("procstatus", type=pa.string()),
        "limiting_mag": _not_negative(rows.get("diffmaglim", type=pa.float32())),
        "programid": _programid(rows, heads),
    }
    return table_of(DETECTION, columns, rows.length)


def _total(rows: Rows, flux: pa.Array, flux_err: pa.Array) -> dict[str, pa.Array]:
    """The columns of the total flux, from the difference flux and its error in nJy.

    Null where the reference image has no source at the object's place, or the difference has no
    flux. The variances are added, as if both were independent: an upper estimate.
    """
    distance, mag, sigma = (
        _numbers(rows.get(name, type=pa.float32())) for name in ("distnr", "magnr", "sigmagnr")
    )
    difference, error = _numbers(flux), _numbers(flux_err)
    reference = np.full(rows.length, np.nan)
    near = (distance >= 0) & (distance < NEAR) & (mag > 0)
    with np.errstate(all="ignore"):  # numpy takes a quarter of Arrow's time for all this
        reference[near] = 10 ** ((31.4 - mag[near]) / 2.5)  # 31.4 is the AB magnitude of 1 nJy
        reference_err = reference * np.where(sigma < 0, np.nan, sigma) * math.log(10) / 2.5
        total = (reference + difference).astype(np.float32)
        total_err = np.sqrt(reference_err**2 + error**2).astype(np.float32)
    known = np.isfinite(total)
    return {
        "total_flux": pa.array(total, mask=~known),
        "total_flux_err": pa.array(total_err, mask=~(known & np.isfinite(total_err))),
    }


def _numbers(values: pa.Array) -> np.ndarray:
    """The values as doubles, NaN for null."""
    found: np.ndarray = values.to_numpy(zero_copy_only=False).astype(np.float64)
    return found


def _programid(rows: Rows, heads: pa.Table) -> pa.ChunkedArray:
    """The programme of each row; that of its alert if the row does not say it.

    Integers alone: `history_cut` compares the bytes of no other type.
    """
    return pc.coalesce(rows.integers(PROGRAMID, pa.int32()), heads["programid"])


def _mjd(rows: Rows) -> pa.Array:
    return pc.add(rows.get("jd", type=pa.float64()), JD_UTC_TO_MJD_TAI)


def _band(rows: Rows) -> pa.Array:
    fid = rows.get("fid", type=pa.int32())
    known = pc.if_else(
        pc.is_in(fid, pa.array([1, 2, 3], pa.int32())), fid, pa.scalar(0, pa.int32())
    )
    return BAND_OF_FID.take(pc.fill_null(known, 0))


def _not_negative(values: pa.Array) -> pa.Array:
    """The values, null where ZTF writes -999 or -99999 for none."""
    return pc.if_else(pc.less(values, 0), pa.scalar(None, values.type), values)


def _given(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(values, MISSING), pa.scalar(None, values.type), values)
